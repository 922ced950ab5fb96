"""Settings that a folder of vectors is encoded with; a resumed run must use the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mar_st.encode.codes import VectorType, check_type
from mar_st.encode.folder import SHARD_ROWS
from mar_st.errors import MarError

if TYPE_CHECKING:
    from mar_st.kernels.linear import Kernel

Precision: TypeAlias = Literal["auto", "fp32", "bf16"]

#: Raised when the engine comes to compute other bytes from the same settings.
ENGINE_VERSION = 1


@dataclass(frozen=True)
class Settings:
    """Settings of encoding a corpus.

    Attributes:
        dim: First dimensions to keep (Matryoshka); default all.
        dtype: How vectors are stored: `float32`, `float16`, `int8` (a scale per vector), `binary`.
        precision: What the model computes in. `auto`: on a CPU float32, on a GPU what the weights are stored
            in. On a CPU the fastest kernel of the precision computes linear layers
            (`mar_st.kernels.linear`); `fp32` is float32 by torch's own.
        prompt: Put before every document; default the model's stored one.
        max_length: Tokens per document at most; default the model's.
        shard: Documents per shard. They are sorted by length together, and a kill loses one shard at most.
        tokens: Tokens of a batch at most; default by model and device.
    """

    dim: int | None = None
    dtype: VectorType = "float32"
    precision: Precision = "auto"
    prompt: str | None = None
    max_length: int | None = None
    shard: int = SHARD_ROWS
    tokens: int | None = None

    def __post_init__(self) -> None:
        check_type(self.dtype, self.dim)
        if self.precision not in ("auto", "fp32", "bf16"):
            raise MarError(f"precision is auto, fp32 or bf16; got {self.precision!r}.")
        for name in ("dim", "max_length", "shard", "tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise MarError(f"{name} is at least 1; got {value}.")

    def identity(self, device: str, *, kernel: Kernel) -> dict[str, Any]:
        """Return, as JSON, everything the bytes depend on besides model and corpus.

        Args:
            device: `cpu`, `cuda`, ...
            kernel: What computes linear layers.
        """
        return {**asdict(self), "device": device, "kernel": kernel, "engine": ENGINE_VERSION}
