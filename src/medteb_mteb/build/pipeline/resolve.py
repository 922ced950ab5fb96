"""Where the inputs of every step come from: an earlier step, or a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.build.read import HUB
from medteb_mteb.build.records import BuildError

if TYPE_CHECKING:
    from medteb_mteb.build.pipeline.schema import Pipeline
    from medteb_mteb.build.pipeline.steps import StepBase

__all__ = ["Source", "model_places", "resolve"]

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Source:
    """An input.

    Attributes:
        path: File, folder, or `hub:ORG/NAME`.
        step: Name of the step that writes it; empty if it was there before.
    """

    path: str
    step: str = ""


def resolve(pipeline: Pipeline, base: Path) -> dict[str, dict[str, list[Source]]]:
    """The inputs of each step, by name of the step and key.

    A name of an earlier step, also with a path inside its folder (`assemble/train/triples.jsonl`), goes
    before a path; paths are from the folder of the file.

    Args:
        pipeline: The pipeline.
        base: Folder of its file.

    Raises:
        BuildError: An input that is not there, comes later, or is of another kind.
    """
    out = base / pipeline.out
    places = {step.name: place for place, step in enumerate(pipeline.steps)}
    return {
        step.name: _inputs(step, place, places, pipeline, base, out)
        for place, step in enumerate(pipeline.steps)
    }


def _inputs(
    step: StepBase, place: int, places: dict[str, int], pipeline: Pipeline, base: Path, out: Path
) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = {}
    for key, mark, value in step.inputs():
        name, _, inside = value.partition("/")
        if name not in places:
            found.setdefault(key, []).append(Source(_path(step, key, value, pipeline, base)))
            continue
        if places[name] >= place:
            raise BuildError(
                f"Step {step.name!r}, {key}: {name!r} does not come before it; a step reads what an earlier "
                "one has written."
            )
        other = pipeline.steps[places[name]]
        # What lies inside a step's folder may be of any kind; its reader will see.
        if not inside and other.WRITES not in mark.kinds:
            raise BuildError(
                f"Step {step.name!r}, {key}: expected {' or '.join(mark.kinds)}, but {value!r} "
                f"({other.step}) writes {other.WRITES}."
            )
        found.setdefault(key, []).append(Source(str(out / name / (inside or other.output())), name))
    return found


def _path(step: StepBase, key: str, value: str, pipeline: Pipeline, base: Path) -> str:
    if value.startswith(HUB):
        return value
    path = base / Path(value).expanduser()
    if not path.exists():
        names = ", ".join(one.name for one in pipeline.steps)
        raise BuildError(
            f"Step {step.name!r}, {key}: there is no step {value!r} and no {path}. Steps: {names}."
        )
    return str(path)


def model_places(step: StepBase, base: Path) -> dict[str, str]:
    """Where the models of a step are: a folder, from that of the file, a name of the Hub, or `bm25`.

    Args:
        step: The step.
        base: Folder of the pipeline file.

    Raises:
        BuildError: A name that is none of these.
    """
    found = {}
    for name in step.models():
        folder = base / Path(name).expanduser()
        if folder.is_dir():
            found[name] = str(folder)
        elif name == "bm25" or name.startswith("bm25:") or _HUB_NAME.fullmatch(name):
            found[name] = name
        else:
            raise BuildError(
                f"Step {step.name!r}: there is no model folder {folder}, and {name!r} is no name of the Hub."
            )
    return found
