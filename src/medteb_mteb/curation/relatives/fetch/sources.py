"""The open APIs from which English MedTEB is built, and the request rate of each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import alone
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import entrez, preprints, trials, wikipedia
from medteb_mteb.curation.relatives.fetch.responses import FROZEN_FILE, Fetching, read_frozen
from medteb_mteb.curation.relatives.fetch.tables import (
    PMC_TERMS,
    PREPRINT_TASKS,
    PUBMED_TASKS,
    TRIAL_FIELDS,
    WIKI_CATEGORIES,
    WIKI_PAIRS,
    extent_of,
)
from medteb_mteb.curation.relatives.fetch.web import RequestSettings, Web
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from medteb_mteb.curation.relatives.fetch.responses import Frozen, Requester
    from medteb_mteb.curation.relatives.raw import Raw

__all__ = ["CONTACT_VARIABLE", "KEY_VARIABLE", "SOURCES", "WebSource", "fetch_source", "frozen_source"]

#: Environment variables: the contact if none is given; NCBI's API key, which allows 10 requests per second.
CONTACT_VARIABLE, KEY_VARIABLE = "MEDTEB_CONTACT", "NCBI_API_KEY"


@dataclass(frozen=True)
class WebSource:
    """An API.

    Attributes:
        official: Address of the API.
        per_second: Maximum requests per second; the operators' limit if they state one.
        tasks: Tasks built from the API.
        fetch: Fetches everything in an extent.
    """

    official: str
    per_second: float
    tasks: tuple[str, ...]
    fetch: Callable[[Requester, Mapping[str, Any]], None]


SOURCES: Mapping[str, WebSource] = {
    "clinical-trials": WebSource(
        trials.OFFICIAL_URL,
        0.8,
        tuple(TRIAL_FIELDS),
        trials.fetch,
    ),
    "wikipedia": WebSource(wikipedia.OFFICIAL_URL, 3.0, (*WIKI_CATEGORIES, *WIKI_PAIRS), wikipedia.fetch),
    "pmc": WebSource(entrez.OFFICIAL_URL, 3.0, tuple(PMC_TERMS), entrez.fetch_pmc),
    "pubmed": WebSource(entrez.OFFICIAL_URL, 3.0, PUBMED_TASKS, entrez.fetch_pubmed),
    # This API documents no rate limit; one request per second is a light load.
    **{
        server: WebSource(preprints.OFFICIAL_URL, 1.0, (task,), preprints.fetch)
        for server, task in PREPRINT_TASKS.items()
    },
}


def fetch_source(
    name: str,
    folder: Path | str,
    *,
    contact: str | None = None,
    tasks: Sequence[str] = (),
    most: int | None = None,
    per_second: float | None = None,
    address: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Fetch a source into a folder; the same call resumes an interrupted fetch.

    Args:
        name: A key of `SOURCES`.
        folder: The folder; a complete one is left unchanged.
        contact: Your e-mail address or web page; default `$MEDTEB_CONTACT`.
        tasks: Tasks to fetch for; default all of the source.
        most: Maximum pages of a category, articles of a term, studies or preprints; default as published.
        per_second: Maximum requests per second; default `WebSource.per_second`.
        address: Address of a mirror.
        say: Called with a line of progress from time to time.

    Returns:
        `source`, the numbers `responses` and `requested`, `sha256` of `fetched.json`, and `fetched_before`:
        whether the folder was already complete.

    Raises:
        BuildError: The source or a task is unknown, the folder belongs to another fetch, or the server gives
            no usable answer.
    """
    if name not in SOURCES:
        raise BuildError(f"No source {name!r}; sources are {', '.join(SOURCES)}.")
    source = SOURCES[name]
    if unknown := [task for task in tasks if task not in source.tasks]:
        raise BuildError(f"{unknown[0]!r} is not made of {name}; its tasks are {', '.join(source.tasks)}.")
    if most is not None and most < 1:
        raise BuildError(f"At least one must be fetched; got {most}.")
    chosen = tuple(task for task in source.tasks if not tasks or task in tasks)
    extent = extent_of(name, chosen, most)
    folder = Path(folder).expanduser()
    with alone(folder):
        before = (folder / FROZEN_FILE).is_file()
        requested = 0
        if before:
            existing = read_frozen(folder / FROZEN_FILE, name, source.official)
            if existing.extent != extent:
                raise BuildError(f"{folder} is a complete fetch of another extent. Give another folder.")
        else:
            web = _web(source, contact, per_second, address)
            fetching = Fetching(folder, {"source": name, "extent": extent}, source.official, web, say)
            source.fetch(fetching.ask, extent)
            fetching.freeze()
            requested = fetching.requested
        frozen = read_frozen(folder / FROZEN_FILE, name, source.official)
    return {
        "source": name,
        "responses": frozen.count,
        "requested": requested,
        "sha256": sha256_of(folder / FROZEN_FILE),
        "fetched_before": before,
    }


def _web(source: WebSource, contact: str | None, per_second: float | None, address: str | None) -> Web:
    contact = contact or os.environ.get(CONTACT_VARIABLE, "")
    if not contact:
        raise BuildError(
            f"Give a contact address (--contact, or ${CONTACT_VARIABLE}): NCBI and Wikimedia require one."
        )
    secret, pace = {}, source.per_second
    if source.official == entrez.OFFICIAL_URL:
        secret = {"tool": "medteb", "email": contact}
        if key := os.environ.get(KEY_VARIABLE):
            secret["api_key"], pace = key, 10.0
    settings = RequestSettings(contact, per_second if per_second is not None else pace)
    return Web(address or source.official, settings, secret=secret)


def frozen_source(raw: Raw, name: str) -> Frozen:
    """Open the frozen responses of a source among raw files; their list counts as read.

    Args:
        raw: The raw files.
        name: A key of `SOURCES`.

    Raises:
        BuildError: The responses are missing or malformed.
    """
    path = raw.one(FROZEN_FILE, f"complete responses, from `medteb build fetch {name} FOLDER`")
    return read_frozen(path, name, SOURCES[name].official)
