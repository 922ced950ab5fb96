"""Parameters of a loss under DeepSpeed.

DeepSpeed's engine wraps the model and knows the parameters of the model alone: it would not average the
gradients of others over the processes (ZeRO 0), or fail on them (ZeRO 1 and 2). A learnt temperature and
RetroMAE's decoder and head are parameters of a loss. The model is therefore lent them for as long as a stage
trains: directly, beside its modules, which are all that it runs through and all that it saves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

#: How the names of lent parameters begin.
LENT = "loss__"


def lend(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    """Register parameters of a loss with the model that the engine will wrap, by name.

    The engine takes no parameters without a dimension; these have one of length 1 meanwhile.
    """
    for name, parameter in parameters.items():
        if not parameter.ndim:
            parameter.data = parameter.data.reshape(1)
            parameter._scalar = True  # type: ignore[attr-defined]
        model.register_parameter(LENT + name.replace(".", "__"), parameter)


def take_back(model: nn.Module) -> None:
    """Undo `lend`."""
    for name in [name for name in model._parameters if name.startswith(LENT)]:
        parameter: Any = model._parameters.pop(name)
        if getattr(parameter, "_scalar", False):
            parameter.data = parameter.data.reshape(())
            parameter.grad = None
