"""Settings that a folder of vectors is encoded with; a resumed run must use the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from mar_st.encode.codes import VectorType, check_type
from mar_st.encode.folder import SHARD_ROWS
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.kernels.linear import Kernel

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16"]

#: Recorded values of `dtype`: the files of a folder call it `precision`.
RECORDED_DTYPES: dict[str, str] = {"auto": "auto", "float32": "fp32", "bfloat16": "bf16"}

#: Version of the engine; raised by every change that makes it compute other bytes from the same settings.
ENGINE_VERSION = 1


@dataclass(frozen=True)
class EncodeSettings:
    """Settings for encoding a corpus.

    Attributes:
        dim: Number of leading dimensions to keep (Matryoshka); default all.
        precision: Precision of the stored vectors: `float32`, `float16`, `int8` (a scale per vector),
            `binary`.
        dtype: Dtype that the model computes in. `auto` is float32 on a CPU, and the dtype of the stored
            weights on a GPU. On a CPU the fastest kernel for the dtype computes linear layers
            (`mar_st.kernels.linear`); for `float32`, torch's own does.
        prompt: Prefix of every document; default the model's stored prompt.
        max_length: Maximum number of tokens per document; default the model's.
        shard: Documents per shard. They are sorted by length together; a killed run loses at most one shard.
        tokens: Maximum number of tokens of a batch; default by model and device.
    """

    dim: int | None = None
    precision: VectorType = "float32"
    dtype: Dtype = "auto"
    prompt: str | None = None
    max_length: int | None = None
    shard: int = SHARD_ROWS
    tokens: int | None = None

    def __post_init__(self) -> None:
        check_type(self.precision, self.dim)
        if self.dtype not in RECORDED_DTYPES:
            raise MarError(
                f"dtype, which the model computes in, is {', '.join(RECORDED_DTYPES)}; got {self.dtype!r}. "
                "The type of stored vectors is precision."
            )
        for name in ("dim", "max_length", "shard", "tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise MarError(f"{name} is a whole number, at least 1; got {value!r}.")

    def identity(self, device: str, *, kernel: Kernel) -> dict[str, Any]:
        """Return, as JSON, everything the bytes depend on besides model and corpus.

        Args:
            device: `cpu`, `cuda`, ...
            kernel: Implementation of linear layers.
        """
        return {**self.to_json(), "device": device, "kernel": kernel, "engine": ENGINE_VERSION}

    def to_json(self) -> dict[str, Any]:
        """Return the settings as files of a folder record them: `dtype` there is the type of the vectors."""
        return {**asdict(self), "dtype": self.precision, "precision": RECORDED_DTYPES[self.dtype]}

    @staticmethod
    def named(recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return recorded settings under their names here, for messages."""
        dtypes = {value: dtype for dtype, value in RECORDED_DTYPES.items()}
        kind = recorded.get("precision")
        return {**recorded, "precision": recorded.get("dtype"), "dtype": dtypes.get(str(kind), kind)}

    @classmethod
    def of_json(cls, recorded: Mapping[str, Any]) -> Self:
        """Return the settings that `to_json` recorded.

        Raises:
            KeyError: A setting is missing.
            MarError: A setting has an unknown value.
        """
        values = cls.named({field.name: recorded[field.name] for field in fields(cls)})
        return cls(**values)
