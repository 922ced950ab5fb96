"""Sources of texts: their names, and the licences of their texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from medteb_mteb.curation.files.folder import lineage
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["TextSource", "merged_sources", "parse_source", "sources_of"]

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


class TextSource(BaseModel):
    """A source of texts.

    Attributes:
        name: Name of the source.
        licence: Licence of its texts: an identifier of the Hub or SPDX (`cc-by-4.0`), or the address of
            its text; `unknown` if it is not known.
        url: Address of publication; empty if unpublished.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=200)
    licence: str
    url: str = ""

    @field_validator("licence")
    @classmethod
    def _identifier(cls, value: str) -> str:
        if not _IDENTIFIER.fullmatch(value) and not _is_address(value):
            raise ValueError(
                f"{value[:80]!r} is not a licence; give an identifier such as cc-by-4.0, the address of its "
                "words, or unknown"
            )
        return value

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value and not _is_address(value):
            raise ValueError(
                f"{value[:80]!r} is not an address; expected one such as https://example.org/texts"
            )
        return value

    @field_validator("name")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not value.isprintable() or not value.strip():
            raise ValueError("the name of a source is one line of text")
        return value

    def to_json(self) -> dict[str, str]:
        """Return the source in the form of manifests; an empty address is left out."""
        return {"name": self.name, "licence": self.licence, **({"url": self.url} if self.url else {})}


def parse_source(entry: str) -> TextSource:
    """Return the source of `NAME=LICENCE`.

    Raises:
        BuildError: The entry has another format, or the licence is invalid.
    """
    # Names and addresses may hold further equals signs.
    address = re.search(r"=\s*(?=https?://)", entry)
    name, equals, licence = (
        (entry[: address.start()], "=", entry[address.end() :]) if address else entry.rpartition("=")
    )
    if not equals:
        raise BuildError(f"--source takes NAME=LICENCE, for instance huatuo=apache-2.0; got {entry!r}.")
    try:
        return TextSource(name=name.strip(), licence=licence.strip())
    except ValidationError as error:
        message = error.errors()[0]["msg"].replace("Value error, ", "")
        raise BuildError(f"--source {entry}: {message}.") from error


def sources_of(texts: str | Path) -> list[dict[str, str]]:
    """Return the sources named in the folders of a step and of the steps before it; empty for raw files.

    Raises:
        BuildError: A source has two licences, or a manifest names sources in another form.
    """
    lists = [step.get("sources", []) for step in lineage(texts)]
    for sources in lists:
        if not isinstance(sources, list) or not all(map(_is_source, sources)):
            raise BuildError(
                f"{texts}: a manifest names the sources {repr(sources)[:80]}; expected a list of objects "
                "with name and licence. Restore the manifest, or make the folder again."
            )
    return merged_sources(lists)


def merged_sources(lists: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, str]]:
    """Merge lists of sources, each source once, in the order of their names.

    Raises:
        BuildError: A source has two licences or addresses.
    """
    by_name: dict[str, dict[str, str]] = {}
    for source in (dict(source) for sources in lists for source in sources):
        if by_name.setdefault(source["name"], source) != source:
            raise BuildError(
                f"The source {source['name']!r} is given as {by_name[source['name']]} and as {source}. "
                "Give it one licence and address, or the two sources different names."
            )
    return [by_name[name] for name in sorted(by_name)]


def _is_source(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("name", "licence"))


def _is_address(value: str) -> bool:
    try:
        address = urlsplit(value)
    except ValueError:
        return False
    return (
        address.scheme in ("http", "https")
        and bool(address.hostname)
        and value.isprintable()
        and " " not in value
    )
