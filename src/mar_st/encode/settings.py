"""Settings that a folder of vectors is encoded with; nothing here imports torch or pyarrow."""

from __future__ import annotations

from typing import Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from mar_st.errors import MarError
from mar_st.options import Settings

VectorType: TypeAlias = Literal["float32", "float16", "int8", "binary"]
Dtype: TypeAlias = Literal["auto", "float32", "bfloat16"]
Executor: TypeAlias = Literal["local", "ray"]

#: Default number of vectors per shard.
SHARD_ROWS = 8192


class EncodeSettings(Settings):
    """Settings that the bytes of a folder of vectors depend on; a resumed run must use the same.

    On a CPU the fastest kernel for the dtype computes linear layers (`mar_st.kernels.linear`); for `float32`,
    torch's own does. Documents of a shard are sorted by length together; a kill loses at most one shard.
    """

    dim: int | None = Field(
        None, ge=1, description="Number of leading dimensions to keep (Matryoshka); default: all."
    )
    precision: VectorType = Field("float32", description="Precision of the stored vectors.")
    dtype: Dtype = Field(
        "auto",
        description="Dtype that the model computes in; auto: float32 on a CPU, that of the weights on a GPU.",
    )
    prompt: str | None = Field(None, description="Prompt put before documents; default: the model's own.")
    max_length: int | None = Field(
        None, ge=1, description="Maximum number of tokens per document; default: the model's."
    )
    shard: int = Field(SHARD_ROWS, ge=1, description="Number of documents per shard.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_type(self.precision, self.dim)
        return self


def check_type(dtype: str, dim: int | None = None) -> None:
    """Refuse an unknown type, and for binary a dimension that is not a multiple of 8.

    Raises:
        MarError: The type or the dimension is refused; the message says what fits.
    """
    if dtype not in get_args(VectorType):
        raise MarError(f"Vectors are stored as {', '.join(get_args(VectorType))}; got {dtype!r}.")
    if dim is not None and (dim < 1 or (dtype == "binary" and dim % 8)):
        raise MarError(f"{dtype} vectors cannot have {dim} dimensions; binary takes multiples of 8.")
