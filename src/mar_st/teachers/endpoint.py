"""An OpenAI-compatible embeddings endpoint as the teacher; every vector is requested once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import numpy as np

from mar_st.errors import MarError
from mar_st.files import load_package, one_line
from mar_st.teachers.store import TeacherStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.encode.vectors import Vectors
    from mar_st.recipes.schema import Side

ENDPOINT_PREFIX = "openai:"
#: Variable with the key for any endpoint, and the one for OpenAI's own address, which is sent to no other.
KEY_VARIABLE, OPENAI_VARIABLE = "MAR_ENDPOINT_KEY", "OPENAI_API_KEY"
OPENAI_HOST = "api.openai.com"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
#: Maximum characters of one request, unless a single text has more.
MAX_REQUEST_CHARACTERS = 60_000
#: Maximum texts of one request, requests at a time, and retries after a temporary failure (connection, 408,
#: 409, 429, 5xx), with growing pauses.
BATCH_TEXTS, WORKERS, RETRIES = 64, 4, 6
#: Texts that are requested between two writes; a kill loses at most these.
SHARD_TEXTS = 512


class EndpointTeacher:
    """A model behind `POST BASE_URL/embeddings`.

    The API key comes from `MAR_ENDPOINT_KEY`, or for OpenAI's own address from `OPENAI_API_KEY`, which is
    sent to no other address. The key is never written anywhere; a server on this machine needs none.

    Args:
        model: Name of the model at the endpoint.
        base_url: Address without the final `/embeddings`.
        root: Folder of the teacher store.
        prompts: Prompts for queries and documents; default none.

    Raises:
        MarError: The address contains a user or password, or is none.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        root: Path,
        *,
        prompts: Mapping[Side, str] | None = None,
    ) -> None:
        address = urlsplit(base_url)
        if not model or address.scheme not in ("http", "https") or not address.hostname:
            raise MarError(
                f"{model}@{base_url} names no model and address; give openai:MODEL@https://HOST/v1, for "
                "instance openai:text-embedding-3-small@https://api.openai.com/v1."
            )
        if address.username or address.password:
            raise MarError(f"Leave user and password out of the address; the key belongs in {KEY_VARIABLE}.")
        self.model, self.base_url, self.host = model, base_url.rstrip("/"), address.hostname
        self.local = address.hostname in LOOPBACK_HOSTS
        self.prompts = dict(prompts or {})
        self.store = TeacherStore(root, shard=SHARD_TEXTS)

    @classmethod
    def parse(cls, spec: str, root: Path, **options: Any) -> Self:
        """Return a teacher from `openai:MODEL@BASE_URL`."""
        model, _, address = spec.removeprefix(ENDPOINT_PREFIX).rpartition("@http")
        return cls(model, f"http{address}", root, **options)

    def identity(self, role: Side) -> dict[str, Any]:
        """Return model, address and prompt."""
        prompt = self.prompts.get(role, "")
        return {"kind": "endpoint", "model": self.model, "base_url": self.base_url, "prompt": prompt}

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return vectors of texts from the store; missing ones are requested."""
        return self.store.vectors(self, texts, role)

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Request the vectors of texts, `(len(texts), dim)` float32.

        Raises:
            MarError: The endpoint refuses or redirects a request, or does not give one vector per text.
        """
        prompt = self.prompts.get(role, "")
        batches: list[list[str]] = []
        size = 0
        for text in (prompt + text for text in texts):
            if not batches or len(batches[-1]) == BATCH_TEXTS or size + len(text) > MAX_REQUEST_CHARACTERS:
                batches.append([])
                size = 0
            batches[-1].append(text)
            size += len(text)
        with ThreadPoolExecutor(WORKERS) as pool:
            requests = [pool.submit(self._request, batch) for batch in batches]
            try:
                parts = [request.result() for request in requests]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if len({part.shape[1] for part in parts}) > 1:
            raise MarError(f"{self.base_url} gave vectors of different widths.")
        return np.concatenate(parts)

    @cached_property
    def _client(self) -> Any:
        openai = load_package("openai", extra="train")
        key = os.environ.get(KEY_VARIABLE)
        official = self.host == OPENAI_HOST and self.base_url.startswith("https:")
        if not key and official:
            key = os.environ.get(OPENAI_VARIABLE)
        if not key and not self.local:
            raise MarError(
                f"Set {KEY_VARIABLE} to the key for {self.base_url}. {OPENAI_VARIABLE} is only sent to "
                f"https://{OPENAI_HOST}."
            )
        client = openai.OpenAI(
            base_url=self.base_url,
            api_key=key or "none",
            max_retries=RETRIES,
            timeout=120.0,
            # The texts go to no other host, nor those for this machine to a proxy.
            http_client=openai.DefaultHttpxClient(follow_redirects=False, trust_env=not self.local),
        )
        if not official:  # the client reads these from the environment by itself
            client.organization = client.project = None
        return client

    def _request(self, texts: list[str]) -> np.ndarray:
        openai = load_package("openai", extra="train")
        try:
            answer = self._client.embeddings.create(model=self.model, input=texts, encoding_format="float")
            entries = sorted(answer.data, key=lambda entry: entry.index)
            vectors = np.array([entry.embedding for entry in entries], dtype=np.float32)
        except openai.APIStatusError as error:
            what = f"status {error.status_code}"
            if 300 <= error.status_code < 400:
                target = error.response.headers.get("Location", "no address")[:200]
                what = f"a redirect to {target}, which is refused; give the final address"
            raise MarError(
                f"{self.base_url} refused a request for {len(texts)} vectors ({what}: {str(error)[:200]}). "
                "Finished vectors are kept; the same command resumes from there."
            ) from error
        except openai.APIError as error:
            raise MarError(
                f"{self.base_url} cannot be asked ({type(error).__name__}: {one_line(error)})."
            ) from error
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise MarError(f"{self.base_url} gave no lists of numbers ({one_line(error, 100)}).") from error
        wanted = list(range(len(texts)))
        if (
            [entry.index for entry in entries] != wanted
            or vectors.ndim != 2
            or not vectors.shape[1]
            or not np.isfinite(vectors).all()
        ):
            raise MarError(f"{self.base_url} did not give one finite vector for each of {len(texts)} texts.")
        return vectors
