"""Checks before the first stage of a run: the packages, the launch, and whether every stage fits the GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mar_st.data import Triples
from mar_st.data.columns import check_negatives
from mar_st.files.packages import need_packages
from mar_st.model.dtypes import is_native
from mar_st.planning.backbones import BackboneError
from mar_st.planning.launch import LaunchError, check_launch
from mar_st.recipes.load import changed
from mar_st.recipes.rules import stage_entries
from mar_st.recipes.schema import ContrastiveStage, DistillStage, JointStage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from mar_st.data import Source
    from mar_st.planning.devices import Device
    from mar_st.planning.launch import Launch
    from mar_st.recipes.schema import Precision, Recipe, Stage

#: Key of a run's `recipe.json`: the settings that were changed to fit a device.
FIT_KEY = "fit"


def ready(
    recipe: Recipe,
    marker: Path,
    launch: Launch,
    device: Device | None,
    *,
    names: Collection[str] | None = None,
    fit: bool | None,
    say: Callable[[str], None],
) -> tuple[Recipe, list[dict[str, Any]]]:
    """Return the recipe as it will be run.

    Settings that an earlier call of this run changed to fit a device stay changed, unless the recipe has a
    new value for them. So a resumed run continues the stages that it has begun.

    Args:
        recipe: The recipe.
        marker: `recipe.json` of the run; it need not exist.
        launch: How training is started.
        device: The GPU; `None` if there is none.
        names: Stages that still have to be trained; default all.
        fit: True changes stages that do not fit the device, `None` refuses them, False skips the check.
        say: Receives a line per change.

    Returns:
        The recipe, and the changes: `set` as `--set` takes it, and `was`, the previous value.

    Raises:
        LaunchError: A stage cannot be trained by this launch, or does not fit and must not be changed.
    """
    check_launch(recipe, launch, names)
    record = [entry for entry in _recorded(marker) if _value(recipe, entry["set"]) == entry["was"]]
    for entry in record:
        say(f"as before, to fit: {entry['set']}")
    recipe = changed(recipe, [entry["set"] for entry in record]) if record else recipe
    if device is None or fit is False:
        if fit:
            say("--fit: no GPU here, nothing to fit")
        return recipe, record
    from mar_st.planning.plan import fitted  # lazy: torch

    try:
        new, changes = fitted(recipe, device, launch, names)
    except BackboneError as error:
        say(f"memory is not checked: {error}")
        return recipe, record
    if changes and not fit:
        settings = " ".join(f"--set {change}" for change in changes)
        raise LaunchError(
            f"Not every stage of {recipe.name} fits this GPU ({device.memory:.0f} GiB). This makes them fit, "
            f"with the same gradients: {settings}. Give --fit to apply it, or --skip-memory-check to start "
            "without it."
        )
    for change in changes:
        say(f"to fit this GPU: {change}")
    own = {change.partition("=")[0] for change in changes}
    before = {entry["set"].partition("=")[0]: entry["was"] for entry in record}
    kept = [entry for entry in record if entry["set"].partition("=")[0] not in own]
    added = [
        {"set": change, "was": before.get(change.partition("=")[0], _value(recipe, change))}
        for change in changes
    ]
    return new, kept + added


def check_packages(recipe: Recipe) -> None:
    """Check that the optional packages that a recipe's stages need are installed.

    Raises:
        PackageError: transformers' trainer lacks accelerate, or a stage trains LoRA and peft is missing.
    """
    lora = any(getattr(stage, "lora_r", None) is not None for stage in recipe.stages)
    need_packages("accelerate", *(["peft"] if lora else []), extra="train", purpose="Training")


def check_sources(recipe: Recipe, stages: Iterable[Stage], sources: Iterable[Source]) -> None:
    """Check that the data of a recipe have the hard negatives that its stages ask for.

    A stage that mines its own negatives needs none, and premises of NLI data without a contradiction are left
    out.

    Args:
        recipe: The recipe.
        stages: Those of its stages that will be run.
        sources: Its data.

    Raises:
        MarError: Negatives are required, but a query has none.
    """
    by_name = {source.entry.name: source for source in sources}
    for stage in stages:
        if not isinstance(stage, ContrastiveStage | DistillStage | JointStage):
            continue
        if isinstance(stage, ContrastiveStage) and stage.mine is not None:
            continue
        for entry in stage_entries(recipe, stage):
            source = by_name[entry.name]
            if entry.negatives and entry.missing_negatives == "refuse" and source.form != "nli":
                check_negatives(Triples.of(source.triples), entry.negatives)


def native_precision(precision: Precision, *, on_cpu: bool, say: Callable[[str], None]) -> Precision:
    """Return the precision that a run computes in: `fp32` on a CPU without instructions for bfloat16.

    Such a CPU would compute the same, less precisely and several times slower, see
    `mar_st.model.native_dtype`.

    Args:
        precision: The recipe's precision.
        on_cpu: True if the run has no GPU.
        say: Receives a line if the result differs from `precision`.
    """
    import torch  # lazy: torch

    if precision == "fp32" or not on_cpu or is_native(torch.bfloat16):
        return precision
    say("bf16: this processor has no instructions for bfloat16, so the run computes in float32")
    return "fp32"


def _recorded(marker: Path) -> list[dict[str, Any]]:
    if not marker.is_file():
        return []
    changes: list[dict[str, Any]] = json.loads(marker.read_text(encoding="utf-8")).get(FIT_KEY, [])
    return changes


def _value(recipe: Recipe, setting: str) -> Any:
    """Return the current value of a setting `stages.NAME.KEY=VALUE`; `None` without the stage."""
    _, name, key = setting.partition("=")[0].split(".")
    return next((getattr(stage, key, None) for stage in recipe.stages if stage.name == name), None)
