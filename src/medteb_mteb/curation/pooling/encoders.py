"""The encoders of a build: folders, names of the Hub, and the models of this project."""

from __future__ import annotations

from mar_st.errors import MarError
from mar_st.model.names import model_source
from medteb_mteb.curation.files.records import BuildError

__all__ = ["encoder_source"]


def encoder_source(name: str) -> str:
    """Return folder or Hub name of an encoder; `mar-mini` is the packaged one unless a folder has this name.

    Args:
        name: Name as given by the user.

    Raises:
        BuildError: The folder or model of this project does not exist.
    """
    try:
        return model_source(name)
    except MarError as error:
        raise BuildError(str(error)) from None
