"""Format `numpy`: the encoder alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.export.formats import LookupFormat, lookup_format
from mar_st.export.graph import ExportError

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.online.torch_encoder import TorchEncoder


@lookup_format("numpy")
class NumpyFormat(LookupFormat):
    """The table; it is all that numpy needs."""

    @staticmethod
    def check(weight_format: str, vectors: object, documents: object) -> None:
        """Refuse documents."""
        del weight_format
        if documents is not None or vectors is not None:
            raise ExportError(
                "Documents and their vectors go only into a page: give --format lookup-json, or leave "
                "them out."
            )

    @staticmethod
    def write(
        encoder: TorchEncoder, part: Path, vectors: str | Path | None, documents: str | Path | None
    ) -> tuple[list[str], int]:
        """Write nothing beside the table."""
        del encoder, part, vectors, documents
        return [], 0
