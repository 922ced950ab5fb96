"""`export.json`: settings, variants and files of an exported query encoder."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mar_st.files import check_file, listed_path, one_line, read_json, write_json
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LISTING_FILE = "export.json"

#: Number types of a table of token embeddings, and its file.
EMBEDDING_TABLES = {"float32": "embeddings.float32.npy", "float16": "embeddings.float16.npy"}
TOKENIZER = "tokenizer.json"

#: Vectors of token pairs: keys of the pairs, and the vectors added to their first and second token.
BIGRAM_FILES = ("bigrams.keys.npy", "bigrams.first.npy", "bigrams.second.npy")

#: Maximum of the whole numbers in `export.json`.
MAX_SETTING = 2**24


@dataclass(frozen=True)
class ExportVariant:
    """One variant of the exported encoder.

    Attributes:
        runtime: `native`, `onnx` or `openvino`.
        precision: `fp32`, `bf16`, `int8` or `int8-calibrated`.
        graph: File of the graph.
        files: All files of the graph, including its weights.
        table: Type of the token embeddings that the graph reads, a key of `EMBEDDING_TABLES`.
        options: Settings of the runtime.
        report: Measurements of the export.
    """

    runtime: str
    precision: str
    graph: str
    files: list[str]
    table: str
    options: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """Check that every field is of its type.

        Raises:
            TypeError: A field has another type; the message names the variant.
        """
        texts = (self.runtime, self.precision, self.graph, self.table, *self.files)
        fits = isinstance(self.files, list) and all(isinstance(text, str) for text in texts)
        fits = fits and isinstance(self.options, dict) and isinstance(self.report, dict)
        p50 = self.report.get("p50_ms", 0) if fits else 0
        if not fits or not isinstance(p50, int | float) or not math.isfinite(p50):
            raise TypeError(f"the variant {name!r} has fields of other types")

    @property
    def name(self) -> str:
        """Return the name of the variant in its folder."""
        return f"{self.runtime}-{self.precision}"


@dataclass(frozen=True, kw_only=True)
class ExportListing:
    """Fields common to all `export.json` files: format, version, and the folder's files with size and digest.

    Attributes:
        form: Name of the format.
        version: Version of the format.
        model: `source`, `identity` (digest of the modules that encode queries) and `query` (name of the query
            encoder in its model; missing in folders of earlier versions).
        files: `bytes`, `sha256` and `sample` of each file, see `mar_st.files.digests`.
    """

    form: ClassVar[str]
    version: ClassVar[int] = 1
    model: dict[str, Any]
    files: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the listing of an exported folder and check its files by their sizes and sampled blocks.

        Raises:
            EncoderError: The listing is missing or has another format or version, or a file is missing or
                differs.
        """
        content = _content(folder, cls.form, cls.version)
        try:
            listing = cls.of(content)
            unlisted = sorted(set(listing.needed()) - set(listing.files))
            if unlisted:
                raise KeyError(f"{', '.join(map(str, unlisted))} is used and not listed")
            for entry in listing.files.values():
                if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
                    raise TypeError(f"an entry of a file is {entry}")
        except (KeyError, TypeError, AttributeError) as error:
            raise EncoderError(
                f"{folder / LISTING_FILE} cannot be read ({one_line(error)}); export the model again."
            ) from error
        _check_files(folder, listing.files)
        return listing

    def needed(self) -> list[str]:
        """Return the names of the files that loading reads."""
        return []

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """Return the listing with a file's content.

        Raises:
            KeyError: A setting is missing; this may also raise `TypeError`.
            TypeError: A setting is unknown.
        """
        return cls(**content)

    def write(self, folder: Path) -> None:
        """Write `export.json`."""
        write_json(folder / LISTING_FILE, {"format": self.form, "version": self.version, **asdict(self)})

    def check(self, least: Mapping[str, int]) -> None:
        """Check that settings are of their types and within their ranges, before anything is computed.

        Args:
            least: Names of integer settings, and the minimum of each.

        Raises:
            TypeError: A setting has another type or is out of range.
        """
        if not isinstance(self.model.get("identity"), str):
            raise TypeError("'identity' of 'model' is a text")
        for name in ("query", "similarity", "space"):
            text = getattr(self, name, None)
            if not isinstance(text, str | None):
                raise TypeError(f"{name!r} is a text or null, not {repr(text)[:40]}")
        for name, low in least.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= MAX_SETTING:
                raise TypeError(
                    f"{name!r} is a whole number from {low} to {MAX_SETTING}, not {repr(value)[:40]}"
                )

    @property
    def query(self) -> str | None:
        """Return the name of the query encoder in the exported model; `None` if unknown."""
        return self.model.get("query")


@dataclass(frozen=True, kw_only=True)
class Listing(ExportListing):
    """Content of `export.json` of an encoder with a graph; `model` names its `model_type`, too.

    Attributes:
        dim: Width of the vectors.
        normalised: Whether they have length 1.
        similarity: Similarity function of the model.
        max_length: Maximum tokens of a text.
        prompts: Stored prompts by name.
        pooling: `mode` and `include_prompt`.
        positions: Number of a text's first position.
        filler: Padding token.
        truncation: Side on which a text is cut, `right` or `left`.
        variants: The variants of the encoder, by name.
        chosen: Name of the variant that is loaded by default.
        space: Digest of the document space, if it is known.
        machine: Machine of the measurements.
        task: Task of the retrieval scores in the reports.
        refused: Requested variants that could not be written, with the reason.
        bigrams: Whether vectors of token pairs are added to the embeddings, see `BIGRAM_FILES`.
    """

    form: ClassVar[str] = "mar-export"

    dim: int
    normalised: bool
    similarity: str | None
    max_length: int
    prompts: dict[str, str]
    pooling: dict[str, Any]
    positions: int
    filler: int
    truncation: str
    variants: dict[str, ExportVariant]
    chosen: str
    space: str | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    bigrams: bool = False

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """Parse the content of a listing, as `ExportListing.of`."""
        variants = {name: ExportVariant(**entry) for name, entry in content.pop("variants").items()}
        listing = cls(variants=variants, **content)
        listing.check({"dim": 1, "max_length": 1, "positions": 0, "filler": 0})
        return listing

    def check(self, least: Mapping[str, int]) -> None:
        """Check the fields of the listing, as `ExportListing.check`."""
        super().check(least)
        pooling = self.pooling
        if not isinstance(pooling["mode"], str) or type(pooling["include_prompt"]) is not bool:
            raise TypeError("'mode' of 'pooling' is a text, and 'include_prompt' true or false")
        if not pooling["include_prompt"] and not isinstance(pooling["special"], list):
            raise TypeError("'special' of 'pooling' is a list of tokens")
        if type(self.normalised) is not bool or type(self.bigrams) is not bool:
            raise TypeError("'normalised' and 'bigrams' are true or false")
        if not all(isinstance(text, str | None) for text in self.prompts.values()):
            raise TypeError("'prompts' are texts")
        for name, variant in self.variants.items():
            variant.check(name)
        if self.truncation not in ("right", "left") or self.chosen not in self.variants:
            raise TypeError("'truncation' is right or left, and 'chosen' names one of 'variants'")

    def needed(self) -> list[str]:
        """Return the names of the files that loading needs, as `ExportListing.needed`."""
        of_variants = [
            [entry.graph, *entry.files, EMBEDDING_TABLES[entry.table]] for entry in self.variants.values()
        ]
        return [TOKENIZER, *self.pair_files(), *(name for names in of_variants for name in names)]

    def pair_files(self) -> tuple[str, ...]:
        """Return the names of the files with vectors of token pairs, if it has such vectors."""
        return BIGRAM_FILES if self.bigrams else ()

    def choose(self, backend: str) -> ExportVariant:
        """Return the variant of a back end, see `load_query_encoder`.

        Raises:
            EncoderError: The variant does not exist.
        """
        if backend == "auto":
            return self.variants[self.chosen]
        if backend in self.variants:
            return self.variants[backend]
        of_runtime = [entry for entry in self.variants.values() if entry.runtime == backend]
        if not of_runtime:
            raise EncoderError(
                f"The exported encoder has no {backend!r}; it has {', '.join(self.variants)}. Choose one, or "
                "export it again."
            )
        if self.variants[self.chosen] in of_runtime:
            return self.variants[self.chosen]
        return min(of_runtime, key=lambda entry: entry.report.get("p50_ms", float("inf")))

    def identity(self, variant: ExportVariant) -> str:
        """Return the digest of all that the vectors of a variant depend on."""
        names = [*variant.files, EMBEDDING_TABLES[variant.table], TOKENIZER, *self.pair_files()]
        content = {
            "model": self.model["identity"],
            "files": {name: self.files[name]["sha256"] for name in names},
            "settings": [self.max_length, self.prompts, self.pooling, self.positions, self.truncation],
            "options": variant.options,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def verify(self, folder: Path) -> None:
        """Check the content of every file.

        Raises:
            EncoderError: A file has changed.
        """
        for name, entry in self.files.items():
            difference = check_file(folder / name, entry)
            if difference is not None:
                raise EncoderError(f"{folder / name} {difference}. Copy or export the encoder again.")


def format_of(folder: Path) -> str | None:
    """Return the format that a folder's `export.json` names; `None` if it names none."""
    try:
        content = read_json(folder / LISTING_FILE)
    except ValueError:
        return None
    return content.get("format") if isinstance(content, dict) else None


def _content(folder: Path, form: str, version: int) -> dict[str, Any]:
    """Return the content of `export.json` without its format and version.

    Raises:
        EncoderError: The file is missing, or has another format or version.
    """
    path = folder / LISTING_FILE
    if not path.is_file():
        raise EncoderError(
            f"{folder} has no {LISTING_FILE}, so it is not an exported encoder. Run `mar export`."
        )
    try:
        content: dict[str, Any] = read_json(path)
        header = (content.pop("format"), content.pop("version"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EncoderError(f"{path} cannot be read ({error}); export the model again.") from error
    if header != (form, version):
        raise EncoderError(f"{path} is not of version {version}; export the model again.")
    return content


def _check_files(folder: Path, files: Mapping[str, dict[str, Any]]) -> None:
    """Check the files of an exported folder by their sizes and sampled blocks.

    Raises:
        EncoderError: A file is missing, truncated or different, or a name points outside the folder.
    """
    for name, entry in files.items():
        path = listed_path(folder, name, folder / LISTING_FILE, EncoderError)
        difference = check_file(path, entry, "sample") if path.is_file() else "is missing"
        if difference is not None:
            raise EncoderError(f"{path} {difference}. Copy or export the encoder again.")
