"""Parameters of a loss under DeepSpeed.

DeepSpeed's engine wraps the model and knows only the model's parameters: it would not average the gradients
of others over the processes (ZeRO 0), or would fail on them (ZeRO 1 and 2). A learnt temperature and
RetroMAE's decoder and head are parameters of a loss. So while a stage trains, they are lent to the model:
registered directly on it, beside its modules. The model computes and saves only its modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

#: Prefix of the names of lent parameters.
LENT_PREFIX = "loss__"


def lend(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    """Register parameters of a loss with the model that the engine will wrap, by name.

    The engine accepts no scalar parameters, so these get one dimension of length 1 meanwhile.
    """
    for name, parameter in parameters.items():
        if not parameter.ndim:
            parameter.data = parameter.data.reshape(1)
            parameter._scalar = True  # type: ignore[attr-defined]
        model.register_parameter(LENT_PREFIX + name.replace(".", "__"), parameter)


def take_back(model: nn.Module) -> None:
    """Undo `lend`."""
    for name in [name for name in model._parameters if name.startswith(LENT_PREFIX)]:
        parameter: Any = model._parameters.pop(name)
        if getattr(parameter, "_scalar", False):
            parameter.data = parameter.data.reshape(())
            parameter.grad = None
