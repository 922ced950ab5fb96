"""Resolution of the inputs of every step: to an earlier step, or a path."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from mar_st.data.trec import is_run
from mar_st.model.names import is_ours, model_source
from medteb_mteb.curation.files.read import HUB_PREFIX
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.base import KEEP_AWAY_KEY, ResolvedInput
from medteb_mteb.curation.pipeline.schema import beside

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.curation.pipeline.base import Kind, PipelineStep
    from medteb_mteb.curation.pipeline.schema import Pipeline

__all__ = ["model_places", "resolve"]

#: Retrievers that are not models.
BM25_RETRIEVERS = ("bm25", "bm25:char-bigram", "bm25:jieba")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def resolve(pipeline: Pipeline, base: Path) -> dict[str, dict[str, list[ResolvedInput]]]:
    """Return the inputs of each step, by name of the step and key.

    The name of an earlier step, also with a path inside its folder (`assemble/train/triples.jsonl`), takes
    precedence over a path; paths are relative to the folder of the file.

    To keep tests out of training data, a step that writes training data also has the editions of all earlier
    steps under `KEEP_AWAY_KEY`, and one that writes editions has all earlier training data under `against`.

    Args:
        pipeline: The pipeline.
        base: Folder of the pipeline file.

    Raises:
        BuildError: An input is missing, is written by a later step, or has another kind.
    """
    out = beside(base, pipeline.out)
    places = {step.name: place for place, step in enumerate(pipeline.steps)}
    return {
        step.name: _inputs(step, place, places, pipeline, base, out)
        for place, step in enumerate(pipeline.steps)
    }


def _inputs(
    step: PipelineStep, place: int, places: dict[str, int], pipeline: Pipeline, base: Path, out: Path
) -> dict[str, list[ResolvedInput]]:
    resolved: dict[str, list[ResolvedInput]] = {}
    for key, mark, value in step.inputs():
        name, _, inside = value.partition("/")
        if name not in places:
            path = _path(step, key, mark.kinds, value, pipeline, base)
            resolved.setdefault(key, []).append(ResolvedInput(path, texts=mark.texts))
            continue
        if places[name] >= place:
            raise BuildError(
                f"Step {step.name!r}, {key}: {name!r} does not come before it; a step reads what an earlier "
                "one has written."
            )
        other = pipeline.steps[places[name]]
        # A path inside a step's folder may be of any kind; the step that reads it checks.
        if not inside and other.WRITES not in mark.kinds:
            raise BuildError(
                f"Step {step.name!r}, {key}: expected {' or '.join(mark.kinds)}, but {value!r} "
                f"({other.step}) writes {other.WRITES}."
            )
        path = str(out / name / (inside or other.output()))
        resolved.setdefault(key, []).append(ResolvedInput(path, name, inside))
    for other in pipeline.steps[:place]:
        if step.TRAINS and other.WRITES == "editions":
            resolved.setdefault(KEEP_AWAY_KEY, []).append(ResolvedInput(str(out / other.name), other.name))
        if step.WRITES == "editions" and other.TRAINS:
            named = {source.step for source in resolved.get("against", ())}
            if other.name not in named:
                resolved.setdefault("against", []).append(ResolvedInput(str(out / other.name), other.name))
    return resolved


def _path(
    step: PipelineStep, key: str, kinds: tuple[Kind, ...], value: str, pipeline: Pipeline, base: Path
) -> str:
    if value.startswith(HUB_PREFIX):
        if not {"texts", "triples", "pairs"} & {*kinds}:
            raise BuildError(f"Step {step.name!r}, {key}: {value} cannot be read from the Hub; give a path.")
        return value
    path = beside(base, value)
    try:
        exists = bool(value) and path.exists()
    except OSError:  # a name too long, or a folder that may not be looked into
        exists = False
    if not exists:
        names = ", ".join(one.name for one in pipeline.steps)
        raise BuildError(
            f"Step {step.name!r}, {key}: there is no step {value!r} and no {path}. Steps: {names}."
        )
    return str(path)


def model_places(step: PipelineStep, base: Path) -> dict[str, str]:
    """Resolve the models of a step: a folder (relative to the file's), a Hub name, `mar-mini`, or `bm25`.

    The `MODELS` of a step list the kinds that it may name.

    Args:
        step: The step.
        base: Folder of the pipeline file.

    Raises:
        BuildError: A name is none of these.
    """
    places = {}
    for name in step.models():
        folder = beside(base, name)
        # os.path: False for a name that is too long for a file.
        is_file = "run" in step.MODELS and is_run(name) and os.path.isfile(folder)  # noqa: PTH113
        if name and (os.path.isdir(folder) or is_file):  # noqa: PTH112
            places[name] = str(folder)
        elif is_ours(name):
            places[name] = model_source(name)
        elif _HUB_NAME.fullmatch(name) or (name in BM25_RETRIEVERS and "bm25" in step.MODELS):
            places[name] = name
        else:
            raise BuildError(
                f"Step {step.name!r}: there is no model folder {folder}, and {name!r} is not a Hub name."
            )
    return places
