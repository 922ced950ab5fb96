"""Fetches English MedTEB's texts from open APIs into a folder that is frozen when the fetch is complete.

`responses/` holds a file per response, named by a digest of its address, so the same command resumes an
interrupted fetch. `fetched.json` is written last: source, extent, and the digest of each response. Nothing
more is fetched into a folder that has it, so builds from it are reproducible.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from mar_st.errors import MarError
from mar_st.files import finished, locked, read_json, write_json
from tools.relatives.tables import OFFICIAL, PER_SECOND, extent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tools.relatives.raw import Raw

#: Status codes after which a request is repeated, and how often.
TEMPORARY, ATTEMPTS = (408, 425, 429, 500, 502, 503, 504), 7
MAX_BYTES = 128 << 20


class TransientError(Exception):
    """A body that is not the expected answer, such as an error page; the request is repeated."""


class Responses:
    """Responses of a source in a folder; with a client, missing ones are fetched.

    Args:
        folder: The folder.
        source: Name of the source.
        get: Returns the body of the response to an address; None for a complete folder.
    """

    def __init__(self, folder: Path, source: str, get: Callable[[str], bytes] | None = None) -> None:
        self.folder, self.official, self.get = folder, OFFICIAL[source], get
        self.digests: dict[str, str] = {}
        self.extent: Mapping[str, Any] = {}
        if get is None:
            record = read_json(folder / "fetched.json")
            if record["source"] != source:
                raise MarError(f"{folder} holds {record['source']}; expected {source}.")
            self.digests, self.extent = record["responses"], record["extent"]

    def ask(self, path: str, params: Mapping[str, Any], parse: Callable[[bytes], Any]) -> Any:
        """Return the content of a response, from the folder or else from the server."""
        address = f"{self.official}{path}?{urlencode(params)}" if params else f"{self.official}{path}"
        name = hashlib.sha256(address.encode()).hexdigest()[:32]
        file = self.folder / "responses" / name
        if self.get is None and name not in self.digests:
            raise MarError(
                f"{self.folder} holds no response to {address[:200]}; it was fetched for other tasks."
            )
        if file.is_file():
            body = file.read_bytes()
            if (
                self.digests.setdefault(name, hashlib.sha256(body).hexdigest())
                != hashlib.sha256(body).hexdigest()
            ):
                raise MarError(f"{file} was changed after the fetch.")
            return parse(body)
        if self.get is None:
            raise MarError(f"{file} is missing; fetch into a new folder.")
        for attempt in range(ATTEMPTS):
            try:
                body = self.get(address)
                content = parse(body)
                break
            except TransientError as error:
                if attempt + 1 == ATTEMPTS:
                    raise MarError(
                        f"{address[:200]} gave no usable answer ({error}). Run this again later."
                    ) from None
                time.sleep(2.0**attempt)
        with finished(file) as part:
            part.write_bytes(body)
        self.digests[name] = hashlib.sha256(body).hexdigest()
        return content


def client(source: str, contact: str, address: str | None = None) -> Callable[[str], bytes]:
    """Return a function that requests an address at most as often as the source allows.

    Args:
        source: Name of the source.
        contact: E-mail address or web page of the user, which NCBI and Wikimedia require.
        address: Address of a mirror, in the place of the official one.
    """
    import httpx  # lazy: httpx

    secret: dict[str, str] = {}
    pause = 1 / PER_SECOND[source]
    if source in ("pubmed", "pmc"):
        secret = {"tool": "medteb", "email": contact}
        if key := os.environ.get("NCBI_API_KEY"):
            secret, pause = {**secret, "api_key": key}, 0.1
    # Redirects are not followed.
    session = httpx.Client(headers={"User-Agent": f"medteb ({contact})"}, timeout=60)
    last = [0.0]

    def get(url: str) -> bytes:
        time.sleep(max(0.0, last[0] + pause - time.monotonic()))
        last[0] = time.monotonic()
        if address is not None:
            url = address.rstrip("/") + url.removeprefix(OFFICIAL[source])
        try:
            with session.stream("GET", httpx.URL(url).copy_merge_params(secret)) as response:
                if response.status_code in TEMPORARY:
                    wait = response.headers.get("Retry-After", "")
                    time.sleep(min(float(wait), 600.0) if wait.isdigit() else 0.0)
                    raise TransientError(f"status {response.status_code}")
                if response.status_code != 200:
                    raise MarError(f"{url[:200]} is refused with status {response.status_code}.")
                body = b""
                for part in response.iter_bytes():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise MarError(f"{url[:200]} has more than {MAX_BYTES:,} bytes; it is refused.")
                return body
        except httpx.HTTPError as error:
            raise TransientError(type(error).__name__) from None

    return get


def fetch(
    source: str,
    folder: Path,
    contact: str,
    *,
    tasks: tuple[str, ...] = (),
    most: int | None = None,
    address: str | None = None,
) -> int:
    """Fetch a source into a folder, and return the number of responses; the same call resumes.

    Args:
        source: A key of `OFFICIAL`.
        folder: The folder; a complete one is left unchanged.
        contact: E-mail address or web page.
        tasks: Tasks to fetch for; default all of the source.
        most: Maximum pages of a category, articles of a term, studies or preprints; default as published.
        address: Address of a mirror.
    """
    from tools.relatives.apis import READERS  # lazy: imports this module

    extent = extent_of(source, tasks, most)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if (folder / "fetched.json").is_file():
            if Responses(folder, source).extent != extent:
                raise MarError(f"{folder} is a complete fetch of another extent. Give another folder.")
            return len(read_json(folder / "fetched.json")["responses"])
        responses = Responses(folder, source, client(source, contact, address))
        for _ in READERS[source](responses.ask, extent):
            pass
        day = dt.datetime.now(dt.UTC).date().isoformat()
        record = {"source": source, "extent": extent, "day": day, "responses": responses.digests}
        write_json(folder / "fetched.json", record)
        return len(responses.digests)


def frozen(raw: Raw, source: str) -> Responses:
    """Return the complete responses of a source among raw files; their list counts as read."""
    path = raw.one("fetched.json", f"responses, from `python -m tools.relatives fetch {source} FOLDER`")
    return Responses(path.parent, source)
