"""An OpenAI-compatible embeddings endpoint as the teacher; every vector is requested once."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.teachers.journal import Journal, TeacherJournalError
from mar_st.teachers.vectors import Vectors, text_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mar_st.recipes.schema import Side

ENDPOINT_PREFIX = "openai:"
#: Variable with the key for any endpoint, and the one for OpenAI's own address, which is sent to no other.
KEY_VARIABLE, OPENAI_VARIABLE = "MAR_ENDPOINT_KEY", "OPENAI_API_KEY"
OPENAI_HOST = "api.openai.com"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
#: Statuses of an answer that names another address.
REDIRECTS = (301, 302, 303, 307, 308)
#: Maximum characters of one request, unless a single text has more.
MAX_REQUEST_CHARACTERS = 60_000


class EndpointError(MarError):
    """An endpoint that does not answer as expected; vectors received before are kept."""


class EndpointTeacher:
    """A model behind `POST BASE_URL/embeddings`.

    Answers go into a journal as they come: records of a text's key and its vector, appended and synced. A
    process that is killed loses only the requests in progress; a torn last record is cut off. The API key
    comes from `MAR_ENDPOINT_KEY`, or for OpenAI's own address from `OPENAI_API_KEY`, which is sent to no
    other address. The key is never written anywhere; a server on this machine needs none.

    Args:
        model: Name of the model at the endpoint.
        base_url: Address without the final `/embeddings`.
        root: Folder of the journals; it may be a teacher store.
        prompts: Prompts for queries and documents; default none.
        batch_size: Maximum texts per request.
        workers: Number of concurrent requests.
        retries: Retries of a request after a temporary failure (connection, 408, 409, 429, 5xx), with growing
            pauses.

    Raises:
        EndpointError: The address contains a user or password, or the key is missing.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        root: Path,
        *,
        prompts: Mapping[Side, str] | None = None,
        batch_size: int = 64,
        workers: int = 4,
        retries: int = 6,
    ) -> None:
        address = urlsplit(base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise EndpointError(
                f"{base_url!r} is not an address; give openai:MODEL@https://HOST/v1, for instance "
                "openai:text-embedding-3-small@https://api.openai.com/v1."
            )
        if address.username or address.password:
            raise EndpointError(
                f"Leave user and password out of the address; the key belongs in {KEY_VARIABLE}."
            )
        self.model, self.base_url = model, base_url.rstrip("/")
        self.local = address.hostname in LOOPBACK_HOSTS
        self.prompts = dict(prompts or {})
        self.batch_size, self.workers, self.retries = batch_size, workers, retries
        name = hashlib.sha256(f"{self.model}\n{self.base_url}".encode()).hexdigest()[:32]
        self.journal = Journal(root / f"endpoint-{name}", {"model": self.model, "base_url": self.base_url})

    @classmethod
    def parse(cls, spec: str, root: Path, **options: Any) -> Self:
        """Return a teacher from `openai:MODEL@BASE_URL`."""
        model, separator, base_url = spec.removeprefix(ENDPOINT_PREFIX).rpartition("@http")
        if not model:
            raise EndpointError(
                f"{spec!r} names no address; give openai:MODEL@BASE_URL, for instance "
                "openai:text-embedding-3-small@https://api.openai.com/v1."
            )
        return cls(model, f"{separator[1:]}{base_url}", root, **options)

    def identity(self, role: Side) -> dict[str, Any]:
        """Return model, address and prompt."""
        prompt = self.prompts.get(role, "")
        return {"kind": "endpoint", "model": self.model, "base_url": self.base_url, "prompt": prompt}

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return vectors of texts from the journal; missing ones are requested.

        Raises:
            EndpointError: The endpoint refuses or redirects a request, or does not give one vector per text.
        """
        prompt = self.prompts.get(role, "")
        prompted = [prompt + text for text in texts] if prompt else texts
        keys = text_keys(prompted)
        with self.journal.lock:
            self.journal.open()
            rows = self.journal.index.find(keys)
            if (rows < 0).any():
                missing = np.flatnonzero(rows < 0)
                missing = missing[np.sort(np.unique(keys[missing], return_index=True)[1])]
                self._buy([prompted[row] for row in missing.tolist()])
                self.journal.open()
                rows = self.journal.index.find(keys)
        part = self.journal.part
        places = np.stack([np.zeros_like(rows), rows], axis=1)
        return Vectors([part] if part else [], places)

    def _buy(self, texts: Sequence[str]) -> None:
        client = self._client()
        failure: EndpointError | None = None
        with (
            tqdm(total=len(texts), desc=f"vectors of {self.model}", unit="texts", disable=None) as bar,
            ThreadPoolExecutor(self.workers) as pool,
        ):
            batches = self._batches(texts)
            pending: dict[Future[None], int] = {}

            def submit() -> None:
                batch = next(batches, None)
                if batch is not None:
                    pending[pool.submit(self._request, client, batch)] = len(batch)

            for _ in range(self.workers):
                submit()
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    size = pending.pop(future)
                    try:
                        future.result()
                    except EndpointError as error:
                        failure = failure or error
                    else:
                        bar.update(size)
                    if failure is None:
                        submit()
        if failure is not None:
            raise failure

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in texts:
            if batch and (len(batch) == self.batch_size or size + len(text) > MAX_REQUEST_CHARACTERS):
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += len(text)
        if batch:
            yield batch

    def _client(self) -> Any:
        try:
            import openai  # lazy: openai
        except ImportError as error:
            raise ImportError(
                "An embeddings endpoint needs the openai package: pip install openai"
            ) from error
        address = urlsplit(self.base_url)
        key = os.environ.get(KEY_VARIABLE)
        if not key and address.scheme == "https" and address.hostname == OPENAI_HOST:
            key = os.environ.get(OPENAI_VARIABLE)
        if not key and not self.local:
            raise EndpointError(
                f"Set {KEY_VARIABLE} to the key for {self.base_url}. {OPENAI_VARIABLE} is only sent to "
                f"https://{OPENAI_HOST}."
            )
        client = openai.OpenAI(
            base_url=self.base_url,
            api_key=key or "none",
            max_retries=self.retries,
            timeout=120.0,
            http_client=openai.DefaultHttpxClient(follow_redirects=False),  # the texts go to no other host
        )
        if address.hostname != OPENAI_HOST:  # the client reads these from the environment by itself
            client.organization = client.project = None
        return client

    def _request(self, client: Any, texts: list[str]) -> None:
        """Send one request and add its vectors to the journal."""
        import openai  # lazy: openai

        try:
            answer = client.embeddings.with_raw_response.create(
                model=self.model, input=texts, encoding_format="float"
            )
        except openai.APIError as error:
            status = getattr(error, "status_code", None)
            if isinstance(error, openai.APIStatusError) and status in REDIRECTS:
                target = error.response.headers.get("Location", "no address")[:200]
                raise EndpointError(
                    f"{self.base_url} redirects to {target} (status {status}); that is refused, so the texts "
                    "were not sent there. Give the final address, if it may receive them."
                ) from error
            what = f"status {status}" if status else type(error).__name__
            raise EndpointError(
                f"{self.base_url} refused a request for {len(texts)} vectors ({what}: {str(error)[:200]}). "
                f"{self.journal.rows} vectors bought so far are kept; the same command resumes from there."
            ) from error
        try:
            self.journal.append(text_keys(texts), _embeddings(answer.content, len(texts)))
        except (EndpointError, TeacherJournalError) as error:
            raise EndpointError(f"{self.base_url} {error}") from error


def _embeddings(content: bytes, count: int) -> np.ndarray:
    """Return the vectors of an answer in the order of the texts, `(count, dim)` float32.

    Raises:
        EndpointError: The answer is not that of an embeddings endpoint, or does not hold one vector per text.
    """
    try:
        entries = json.loads(content)["data"]
        indexes = [entry["index"] for entry in entries]
        vectors = [entry["embedding"] for entry in entries]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        shown = one_line(ValueError(content[:1000].decode(errors="replace")), 100)
        raise EndpointError(
            "gave an answer that is not a JSON object with 'data', a list of objects with 'index' and "
            f"'embedding': {shown!r}. Give the address of an OpenAI-compatible embeddings endpoint, without "
            "the final /embeddings."
        ) from error
    if len(entries) != count:
        raise EndpointError(f"gave {len(entries)} vectors for {count} texts.")
    if not all(type(index) is int for index in indexes) or sorted(indexes) != list(range(count)):
        raise EndpointError(
            f"gave vectors with the indexes {str(indexes)[:100]} for {count} texts; expected is each number "
            f"from 0 to {count - 1} once. Which vector belongs to which text is unknown."
        )
    try:
        with np.errstate(over="ignore"):  # the journal refuses infinite values
            matrix = np.array([vectors[place] for place in np.argsort(indexes)], dtype=np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise EndpointError(
            f"gave vectors that are not lists of numbers of one width ({one_line(error, 100)})."
        ) from error
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise EndpointError(f"gave vectors that are not lists of numbers: {str(vectors[0])[:100]}.")
    return matrix
