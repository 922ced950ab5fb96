"""Croissant: description of an edition as JSON-LD for search engines and loaders (MLCommons 1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.data import read_rows
from mar_st.text.values import TsvCell, as_number
from medteb_mteb.editions import mappings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from medteb_mteb.editions import Edition

__all__ = ["croissant"]

_CR, _DCT = "http://mlcommons.org/croissant/", "http://purl.org/dc/terms/"
_TERMS = (
    "citeAs", "column", "extract", "field", "fileProperty", "fileObject",
    "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key",
    "md5", "parentField", "path", "recordSet", "references", "regex",
    "repeated", "replace", "separator", "source", "subField", "transform",
)  # fmt: skip
#: The context that the specification prescribes.
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": _CR,
    "dct": _DCT,
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _TERMS},
}
#: Formats of the tables, by the end of a file's name.
FORMATS = {".jsonl": "application/jsonlines", ".tsv": "text/tab-separated-values"}


def croissant(edition: Edition, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Describe an edition by the Croissant format 1.0.

    Every file of the manifest is a file object with its size and sha256, every table a record set with the
    columns of its first row. Columns of lists, such as candidates, are left out.

    Args:
        edition: The edition.
        provenance: How it was made; its sources are named.
    """
    description = str(edition.extra.get("description") or f"Edition {edition.name} of {edition.task}.")
    counts = ", ".join(f"{number:,} {what.replace('_', ' ')}" for what, number in edition.counts.items())
    tables = [path for path in sorted(edition.files) if _suffix(path) in FORMATS]
    works = [
        {
            "@type": "sc:CreativeWork",
            "name": str(one.get("name")),
            "license": str(one.get("licence", "unknown")),
        }
        for one in mappings(provenance, "sources") or mappings(edition.extra, "sources")
    ]
    content = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"{edition.task}-{edition.name}",
        "description": f"{description} It has {counts}.",
        "version": edition.version,
        "license": edition.licence,
        "url": f"urn:sha256:{edition.digest}",
        "identifier": f"sha256:{edition.digest}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "contentUrl": path,
                "contentSize": f"{entry.bytes} B",
                "encodingFormat": FORMATS.get(_suffix(path), "application/octet-stream"),
                "sha256": entry.sha256,
            }
            for path, entry in sorted(edition.files.items())
        ],
        "recordSet": [_records(edition.path / path, path) for path in tables],
        "sc:isBasedOn": works,
    }
    return {key: value for key, value in content.items() if value}


def _suffix(path: str) -> str:
    return path[path.rfind(".") :]


def _records(file: Path, path: str) -> dict[str, Any]:
    table = path[: path.rfind(".")].replace("/", "-")
    first = next((row.values for row in read_rows(file)), {})
    return {
        "@type": "cr:RecordSet",
        "@id": table,
        "name": table,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{table}/{column}",
                "name": f"{table}/{column}",
                "dataType": _type(column, value),
                "source": {"fileObject": {"@id": path}, "extract": {"column": column}},
            }
            for column, value in first.items()
            if not isinstance(value, list | dict)
        ],
    }


def _type(column: str, value: Any) -> str:
    """Return the type of a column from its first value; ids are texts."""
    if column.endswith("id") or (isinstance(value, str) and not isinstance(value, TsvCell)):
        return "sc:Text"
    if isinstance(value, bool):
        return "sc:Boolean"
    number = as_number(value)
    return "sc:Text" if number is None else "sc:Integer" if float(number).is_integer() else "sc:Float"
