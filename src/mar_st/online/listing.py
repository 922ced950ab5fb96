"""`export.json`: settings, variants and files of an exported query encoder, checked when it is read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict  # that of Python 3.11 is not enough for pydantic

from mar_st.files import listed_path, read_json, sha256, write_json
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from pathlib import Path

#: The listing of an exported folder, and its format.
LISTING_FILE, FORMAT = "export.json", "mar-export"

#: Files with the token embeddings, float16, and the tokenizer.
EMBEDDINGS, TOKENIZER = "embeddings.npy", "tokenizer.json"

#: Vectors of token pairs: keys of the pairs, and the vectors added to their first and second token.
BIGRAM_FILES = ("bigrams.keys.npy", "bigrams.first.npy", "bigrams.second.npy")

#: Whole numbers in `export.json`.
Count = Annotated[int, Field(ge=0, le=2**24)]
Size = Annotated[int, Field(ge=1, le=2**24)]

_CONFIG = ConfigDict(extra="forbid")


class FileEntry(TypedDict):
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


def entry_of(path: Path) -> FileEntry:
    """Return the entry of a file."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


class ExportedModel(TypedDict):
    """The exported model: `identity` is the digest of the modules that encode queries.

    `query` is the name of the query encoder in its model.
    """

    source: str
    identity: str
    query: NotRequired[str | None]
    model_type: NotRequired[str]


@dataclass(frozen=True, config=_CONFIG)
class ExportVariant:
    """One variant of the exported encoder.

    Attributes:
        runtime: `native`, `onnx` or `openvino`.
        precision: `fp32` or `int8`.
        graph: File of the graph.
        files: All files of the graph, including its weights.
        report: Measurements of the export.
    """

    runtime: str
    precision: str
    graph: str
    files: list[str]
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the variant in its folder."""
        return f"{self.runtime}-{self.precision}"

    @property
    def milliseconds(self) -> float:
        """Return the measured median time of a query; infinite if it was not measured."""
        return float(self.report.get("p50_ms", float("inf")))


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Listing:
    """Content of `export.json`, which also holds `format`.

    Attributes:
        model: The exported model.
        files: Size and digest of each file.
        dim: Width of the vectors.
        normalised: Whether they have length 1.
        similarity: Similarity function of the model.
        max_length: Maximum tokens of a text.
        prompts: Stored prompts by name.
        pooling: Pooling mode of the encoder.
        positions: Number of a text's first position.
        filler: Padding token.
        truncation: Side on which a text is cut.
        variants: The variants of the encoder, by name.
        chosen: Name of the variant that is loaded by default.
        space: Digest of the document space, if it is known.
        refused: Requested variants that could not be written, with the reason.
        bigrams: Whether vectors of token pairs are added to the embeddings, see `BIGRAM_FILES`.
    """

    model: ExportedModel
    files: dict[str, FileEntry]
    dim: Size
    normalised: bool
    similarity: str | None
    max_length: Size
    prompts: dict[str, str | None]
    pooling: Literal["cls", "lasttoken", "mean"]
    positions: Count
    filler: Count
    truncation: Literal["right", "left"]
    variants: dict[str, ExportVariant]
    chosen: str
    space: str | None = None
    refused: dict[str, str] = field(default_factory=dict)
    bigrams: bool = False

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the listing of an exported folder, and check that its files are there with their sizes.

        Raises:
            EncoderError: The listing is damaged or of another format, or a file is missing, cut, or outside
                the folder.
        """
        path = folder / LISTING_FILE
        try:
            content = read_json(path)
            if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
                raise EncoderError(f"{path} is not of the format {FORMAT}. Run `mar export`.")
            listing: Self = TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            from mar_st.options import invalid  # lazy: typer

            message = " ".join(invalid(error).split())
            raise EncoderError(f"{path}: {message} Export the model again.") from error
        except (OSError, ValueError) as error:
            raise EncoderError(f"{path} cannot be read ({error}); export the model again.") from error
        unlisted = sorted(set(listing.needed()) - set(listing.files))
        if unlisted:
            raise EncoderError(f"{path} does not list {', '.join(unlisted)}. Export the model again.")
        for name, entry in listing.files.items():
            file = listed_path(folder, name, path, EncoderError)
            size = file.stat().st_size if file.is_file() else None
            if size != entry["bytes"]:
                found = "is missing" if size is None else f"has {size} bytes, not {entry['bytes']}"
                raise EncoderError(f"{file} {found}. Copy or export the encoder again.")
        return listing

    def needed(self) -> list[str]:
        """Return the names of the files that loading reads."""
        of_variants = [name for entry in self.variants.values() for name in (entry.graph, *entry.files)]
        return [TOKENIZER, EMBEDDINGS, *self.pair_files(), *of_variants]

    def pair_files(self) -> tuple[str, ...]:
        """Return the names of the files with vectors of token pairs, if it has such vectors."""
        return BIGRAM_FILES if self.bigrams else ()

    def write(self, folder: Path) -> None:
        """Write `export.json`."""
        write_json(folder / LISTING_FILE, {"format": FORMAT, **asdict(self)})

    def choose(self, backend: str) -> ExportVariant:
        """Return the variant of a back end, see `load_query_encoder`.

        Raises:
            EncoderError: The variant does not exist.
        """
        name = self.chosen if backend == "auto" else backend
        if name not in self.variants:
            raise EncoderError(
                f"The exported encoder has no {name!r}; it has {', '.join(self.variants)}. Choose one, or "
                "export it again."
            )
        return self.variants[name]

    def identity(self, variant: ExportVariant) -> str:
        """Return the digest of all that the vectors of a variant depend on: model, files and settings."""
        names = [*variant.files, EMBEDDINGS, TOKENIZER, *self.pair_files()]
        settings = [self.max_length, self.prompts, self.pooling, self.positions, self.truncation]
        content = [self.model["identity"], {name: self.files[name]["sha256"] for name in names}, settings]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def query(self) -> str | None:
        """Return the name of the query encoder in the exported model; `None` if unknown."""
        return self.model.get("query")
