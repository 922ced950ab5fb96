"""Going away: use `MarError`."""

from mar_st.errors import MarError as UserError

__all__ = ["UserError"]
