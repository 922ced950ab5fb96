"""Settings that a folder of vectors is encoded with; nothing here imports torch or pyarrow."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from mar_st.options import Settings

VectorType: TypeAlias = Literal["float32", "float16"]
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
