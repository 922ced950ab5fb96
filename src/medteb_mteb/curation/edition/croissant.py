"""Croissant: description of an edition as JSON-LD for search engines and loaders (MLCommons 1.0)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from mar_st.text.values import TsvCell
from medteb_mteb.editions.manifest import PROVENANCE, sha256_of
from medteb_mteb.editions.provenance import days, mappings, read_provenance
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.rows import iter_rows

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.editions.manifest import Edition

__all__ = ["croissant"]

#: The context that the specification prescribes.
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
#: Formats of the tables, by the end of a file's name.
FORMATS = {".jsonl": "application/jsonlines", ".tsv": "text/tab-separated-values"}
_JSON = "application/json"
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?")
#: Pages of licences that editions usually have; others are given by their identifier.
LICENCES = {
    "apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "cc-by-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "cc-by-sa-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "cc0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "mit": "https://opensource.org/license/mit",
}


def croissant(edition: Edition, *, url: str = "") -> dict[str, Any]:
    """Describe an edition by the Croissant format 1.0.

    Every file of the manifest is a file object with its size and sha256, every table a record set with the
    columns of its first row; the type of a column fits all of its rows. Columns of lists, such as candidates,
    are left out. What `provenance.json` says of sources, judges, labels and leaks goes into the fields of
    Croissant's RAI vocabulary.

    Args:
        edition: The edition.
        url: Address of the published edition; the addresses of files are relative to the folder.

    Raises:
        EditionError: `provenance.json` cannot be read.
        FolderError: A table has no row to read columns from, or does not have the format of its name.
    """
    name = f"{edition.task}-{edition.name}"
    provenance = read_provenance(edition.path)
    extra_fields = {key: value for key, value in edition.extra.items() if key != "description"}
    description = str(edition.extra.get("description") or f"Edition {edition.name} of {edition.task}.")
    counts = ", ".join(f"{number:,} {what.replace('_', ' ')}" for what, number in edition.counts.items())
    content: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": f"{description} It has {counts}.",
        "version": edition.version,
        "license": _licence(edition.licence),
        "url": url or f"urn:sha256:{edition.digest}",
        "identifier": f"sha256:{edition.digest}",
        "distribution": [
            _file(path, entry.sha256, entry.bytes) for path, entry in sorted(edition.files.items())
        ],
        "recordSet": [
            _records(edition.path / path, path) for path in sorted(edition.files) if _suffix(path) in FORMATS
        ],
    }
    if extra_fields:
        content["rai:dataCollection"] = json.dumps(extra_fields, ensure_ascii=False, sort_keys=True)
    if provenance:
        file = edition.path / PROVENANCE
        content["distribution"].append(_file(PROVENANCE, sha256_of(file), file.stat().st_size))
    sources = mappings(provenance, "sources") or mappings(edition.extra, "sources")
    return {**content, **_based_on(sources), **_rai(provenance, mappings(edition.extra, "history"))}


def _based_on(sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sources with their licences, in the terms of schema.org."""
    works = [
        {
            "@type": "sc:CreativeWork",
            "name": str(source.get("name")),
            **({"license": _licence(str(source["licence"]))} if source.get("licence") else {}),
            **({"url": str(source["url"])} if source.get("url") else {}),
        }
        for source in sources
    ]
    return {"sc:isBasedOn": works} if works else {}


def _rai(provenance: dict[str, Any], history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return judges, rule, agreement, retrievers, anonymisers and leaks in fields of the RAI vocabulary."""
    judges, writers = mappings(provenance, "judges"), mappings(provenance, "writers")
    consensus = mappings(provenance, "consensus")
    protocol = [
        f"labels by the rule {one.get('rule')} of the judges' grades S, A, B, C and D; positive: "
        f"{', '.join(map(str, _list(one.get('positive'))))}; pairs: {_json(one.get('labels'))}"
        for one in consensus
    ]
    agreement = [
        f"{name}: {_json(estimate)} (estimate, 95 % interval)"
        for one in consensus
        for name, estimate in _object(one.get("agreement")).items()
    ]
    candidates = [f"candidates of {_json(one)}" for one in mappings(provenance, "retrievers")]
    anonymisers = [f"anonymised: {_json(one)}" for one in mappings(provenance, "anonymisers")]
    leaks = (
        [f"contamination: {_json(provenance['contamination'])}"] if provenance.get("contamination") else []
    )
    versions = [f"earlier version: {_json(one)}" for one in history]
    fields = {
        "rai:dataCollectionTimeFrame": list(days(judges + writers)),
        "rai:machineAnnotationTools": list(map(_json, judges + writers)),
        "rai:annotationsPerItem": f"one grade of each of {len(judges)} judges" if judges else "",
        "rai:dataAnnotationProtocol": protocol,
        "rai:dataAnnotationAnalysis": agreement,
        "rai:dataPreprocessingProtocol": candidates + anonymisers,
        "rai:dataLimitations": leaks,
        "rai:dataReleaseMaintenancePlan": "; ".join(versions),
    }
    return {key: value for key, value in fields.items() if value}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _licence(identifier: str) -> str:
    """Return the address of a licence that is well known, else its identifier."""
    return LICENCES.get(identifier.lower(), identifier)


def _suffix(path: str) -> str:
    return path[path.rfind(".") :]


def _file(path: str, sha256: str, size: int) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path,
        "contentUrl": path,
        "contentSize": f"{size} B",
        "encodingFormat": FORMATS.get(
            _suffix(path), _JSON if path.endswith(".json") else "application/octet-stream"
        ),
        "sha256": sha256,
    }


def _records(file: Path, path: str) -> dict[str, Any]:
    table = path[: path.rfind(".")].replace("/", "-")
    return {
        "@type": "cr:RecordSet",
        "@id": table,
        "name": table,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{table}/{column}",
                "name": f"{table}/{column}",
                "dataType": kind,
                "source": {"fileObject": {"@id": path}, "extract": {"column": column}},
            }
            for column, kind in _columns(file).items()
        ],
    }


def _columns(file: Path) -> dict[str, str]:
    """Return the columns of a table's first row and their types, which fit the values of all rows."""
    problems = Problems(file)
    rows = (row.values for row in iter_rows(file, problems))
    first = next(rows, {})
    single = {name: value for name, value in first.items() if not isinstance(value, list | dict)}
    kinds = {name: _cell_kind(name, value) for name, value in single.items()}
    for row in rows:
        changeable = [name for name, kind in kinds.items() if kind != "sc:Text"]
        if not changeable:
            break
        kinds |= {name: _common(kinds[name], _cell_kind(name, row.get(name))) for name in changeable}
    problems.raise_if_any()
    return {name: kind or "sc:Text" for name, kind in kinds.items()}


def _cell_kind(name: str, value: Any) -> str:
    """Return the type of a value; a TSV cell in the form of a number is one, unless its column holds ids."""
    return _kind(_value(value) if isinstance(value, TsvCell) and not name.endswith("id") else value)


def _value(cell: str) -> int | float | str | None:
    """Return the value of a TSV cell: its kind matters here, not the number."""
    if _WHOLE_NUMBER.fullmatch(cell):
        return 0
    return 0.0 if _NUMBER.fullmatch(cell) else cell or None


def _kind(value: Any) -> str:
    """Return the type of a value; empty for null, which fits any type."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "sc:Boolean"
    return "sc:Integer" if isinstance(value, int) else "sc:Float" if isinstance(value, float) else "sc:Text"


def _common(one: str, other: str) -> str:
    """Return the type that fits the values of both types."""
    if one == other or not other:
        return one
    if not one:
        return other
    return "sc:Float" if {one, other} == {"sc:Integer", "sc:Float"} else "sc:Text"
