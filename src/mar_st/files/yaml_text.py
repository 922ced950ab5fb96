"""Going away: import from mar_st.files."""

from mar_st.files.reading import YamlError, parse_yaml

__all__ = ["YamlError", "parse_yaml"]
