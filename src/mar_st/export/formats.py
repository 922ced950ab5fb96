"""Export formats, registered by decorators: graphs of encoders, and tables of lookup encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from mar_st.files.registered import Registered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    import numpy as np

    from mar_st.export.graph import PackedEncoder
    from mar_st.online.listing import ExportVariant, Listing
    from mar_st.online.torch_encoder import TorchEncoder


@dataclass(frozen=True)
class GraphSource:
    """An encoder to write as graphs.

    Attributes:
        graph: The encoder; it may be deleted once the formats are created.
        example: Inputs of the graph, of several texts.
        listing: Listing of the encoder.
        folder: Folder to write to.
    """

    graph: PackedEncoder
    example: dict[str, np.ndarray]
    listing: Listing
    folder: Path


class GraphFormat(ABC):
    """Writes the variants of one encoder that one runtime computes.

    Args:
        source: The encoder.

    Attributes:
        FORMS: The only weight formats that it supports; others are skipped if anything else is written.
            `None`: every weight format is tried, and may be refused with a reason.

    Raises:
        ExportError: The encoder cannot be written in this format, or a package is missing.
    """

    FORMS: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def __init__(self, source: GraphSource) -> None: ...

    @abstractmethod
    def write(
        self, precision: str, folder: Path, table: str, calibration: Sequence[dict[str, np.ndarray]]
    ) -> ExportVariant:
        """Write one variant.

        Args:
            precision: `fp32`, `bf16`, `int8` or `int8-calibrated`.
            folder: Folder to write to.
            table: Type of the token embeddings that the variant reads.
            calibration: Inputs whose activations determine how activations are rounded to int8.

        Raises:
            ExportError: This precision cannot be computed, or a package is missing.
        """

    def finish(self, kept: Collection[str]) -> None:  # noqa: B027 - most formats have nothing to delete
        """Delete files that were needed only for writing.

        Args:
            kept: Names of the variants that were written.
        """


class LookupFormat(ABC):
    """A format of the files beside the table of a lookup encoder."""

    @staticmethod
    @abstractmethod
    def check(weight_format: str, vectors: object, documents: object) -> None:
        """Refuse options that do not fit the format.

        Args:
            weight_format: Format of the table.
            vectors: Folder of document vectors, if one was given.
            documents: Corpus, if one was given.

        Raises:
            ExportError: An option does not fit.
        """

    @staticmethod
    @abstractmethod
    def write(
        encoder: TorchEncoder, part: Path, vectors: str | Path | None, documents: str | Path | None
    ) -> tuple[list[str], int]:
        """Write the files of the format.

        Args:
            encoder: The encoder.
            part: Folder to write to.
            vectors: Folder of document vectors.
            documents: Corpus.

        Returns:
            Names of the files, and the number of documents.

        Raises:
            ExportError: Documents and vectors do not fit each other or the encoder.
        """


G = TypeVar("G", bound=GraphFormat)
L = TypeVar("L", bound=LookupFormat)

GRAPHS: Registered[GraphFormat] = Registered(f"{__package__}.graphs", "Format")
LOOKUPS: Registered[LookupFormat] = Registered(f"{__package__}.lookups", "Format of lookup encoders")


def graph_format(name: str, *, after: str = "") -> Callable[[type[G]], type[G]]:
    """Register a class as a format of graphs.

    Args:
        name: Name of the format, of its module, and of the runtime that computes it.
        after: Format that comes before it in lists.

    Raises:
        ValueError: The name is taken, or differs from the module's.
        TypeError: The class does not define all methods.
    """

    def register(cls: type[G]) -> type[G]:
        GRAPHS.add(name, cls, after)
        return cls

    return register


def lookup_format(name: str, *, after: str = "") -> Callable[[type[L]], type[L]]:
    """Register a class as a format of lookup encoders.

    Args:
        name: Name of the format and of its module.
        after: Format that comes before it in lists.

    Raises:
        ValueError: The name is taken, or differs from the module's.
        TypeError: The class does not define all methods.
    """

    def register(cls: type[L]) -> type[L]:
        LOOKUPS.add(name, cls, after)
        return cls

    return register
