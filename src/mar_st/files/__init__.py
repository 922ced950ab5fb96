"""Files on disk: written completely or not at all, checked names, digests, and one lock per folder."""

from mar_st.files.checkpoints import last_checkpoint
from mar_st.files.packages import load_package
from mar_st.files.reading import (
    JsonError,
    YamlError,
    counted,
    listed_path,
    load_array,
    one_line,
    parse_yaml,
    printable,
    read_json,
    read_record,
    regular,
    sha256,
)
from mar_st.files.writing import (
    LOCK,
    clear,
    finished,
    finished_folder,
    locked,
    replace_folder,
    user_cache,
    write_json,
    write_text,
)

__all__ = [
    "LOCK",
    "JsonError",
    "YamlError",
    "clear",
    "counted",
    "finished",
    "finished_folder",
    "last_checkpoint",
    "listed_path",
    "load_array",
    "load_package",
    "locked",
    "one_line",
    "parse_yaml",
    "printable",
    "read_json",
    "read_record",
    "regular",
    "replace_folder",
    "sha256",
    "user_cache",
    "write_json",
    "write_text",
]
