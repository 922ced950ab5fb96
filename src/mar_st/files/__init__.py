"""Files on disk: checked names, atomic writes that survive a power cut, and digests."""

from mar_st.files.digests import (
    DIGESTS,
    Check,
    check_file,
    entry_of,
    files_below,
    read_digests,
    refresh_digests,
    sample_of,
    write_digests,
)
from mar_st.files.names import delete_listed, listed_path, refuse_link, refuse_links
from mar_st.files.reading import JsonError, counted, one_line, printable, read_json, repeated
from mar_st.files.reserve import open_reserved, reserve
from mar_st.files.writing import (
    finished,
    finished_folder,
    make_folder,
    move_file,
    move_folder,
    replace_folder,
    sync_file,
    sync_folder,
    write_json,
    write_text,
)

__all__ = [
    "DIGESTS",
    "Check",
    "JsonError",
    "check_file",
    "counted",
    "delete_listed",
    "entry_of",
    "files_below",
    "finished",
    "finished_folder",
    "listed_path",
    "make_folder",
    "move_file",
    "move_folder",
    "one_line",
    "open_reserved",
    "printable",
    "read_digests",
    "read_json",
    "refresh_digests",
    "refuse_link",
    "refuse_links",
    "repeated",
    "replace_folder",
    "reserve",
    "sample_of",
    "sync_file",
    "sync_folder",
    "write_digests",
    "write_json",
    "write_text",
]
