"""Observers of a run: callbacks of the caller, and the trackers that transformers reports to."""

from __future__ import annotations

import inspect
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mar_st.recipes.schema import Stage

#: If tensorboard is installed, stages write their own event files, which a resumed run continues.
OWN_TRACKER = "tensorboard"


class ReportError(MarError):
    """A callback or a tracker that a run cannot use."""


class RunCallback(TrainerCallback):
    """A transformers callback that also receives the events of a run outside its trainers.

    Pass an instance to `mar_st.runs.train.train(callbacks=...)`. Every process of a launch has its own.
    """

    def on_stage_begin(self, stage: Stage, folder: Path) -> None:
        """Called before a stage is trained or resumed; finished stages are skipped without a call.

        Args:
            stage: The stage.
            folder: Folder of its checkpoints and records.
        """

    def on_stage_end(self, stage: Stage, folder: Path) -> None:
        """Called when the model of a trained stage is saved in `folder/model`."""

    def on_teacher_encode(self, texts: int, seconds: float) -> None:
        """Called when a teacher has encoded texts whose vectors were not stored.

        Args:
            texts: Number of texts.
            seconds: Time it took.
        """


def check_callbacks(callbacks: Iterable[Any]) -> tuple[Any, ...]:
    """Return the callbacks, each an instance or a class of transformers' `TrainerCallback`.

    Raises:
        ReportError: An entry is not a callback, or is a `RunCallback` class instead of an instance.
    """
    checked = tuple(callbacks)
    for callback in checked:
        kind = callback if inspect.isclass(callback) else type(callback)
        if not issubclass(kind, TrainerCallback):
            raise ReportError(
                f"A callback is a transformers.TrainerCallback or a class of it; got {kind.__name__}. Derive "
                "it from TrainerCallback and define on_log, on_evaluate, ..."
            )
        if kind is callback and issubclass(kind, RunCallback):
            raise ReportError(
                f"{kind.__name__} receives events of the whole run; pass an instance, {kind.__name__}()."
            )
    return checked


def check_reports(report_to: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the trackers to report to, as in transformers: `wandb`, `mlflow`, ...

    Raises:
        ReportError: An unknown name, or a tracker whose package is not installed.
    """
    names = (report_to,) if isinstance(report_to, str) else tuple(report_to or ())
    for name in names:
        callback: Any = INTEGRATION_TO_CALLBACK.get(name)
        if callback is None:
            similar = get_close_matches(name, INTEGRATION_TO_CALLBACK)
            hint = f" Did you mean {similar[0]!r}?" if similar else ""
            raise ReportError(
                f"No tracker {name!r}; transformers knows {', '.join(INTEGRATION_TO_CALLBACK)}.{hint}"
            )
        try:
            callback()
        except (RuntimeError, ImportError) as error:
            reason = " ".join(str(error).split())
            raise ReportError(f"report_to {name}: {reason} Install it, or leave report_to out.") from error
    return tuple(dict.fromkeys(names))


def end_reports(names: Iterable[str]) -> None:
    """End a tracker's run of a stage if transformers leaves it open, so that the next stage has its own."""
    for name in names:
        module: Any = sys.modules.get(name)
        if name == "wandb" and module is not None and module.run is not None:
            module.finish()
