"""The file of a build: the table of all steps, and the steps that a file asks for, with their settings."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from mar_st.errors import MarError
from mar_st.files import regular
from mar_st.options import FromFile, read_yaml, validated
from medteb_mteb.curation.anonymize.step import ANONYMIZE
from medteb_mteb.curation.cases.screen import SCREEN
from medteb_mteb.curation.cases.settle import SETTLE
from medteb_mteb.curation.cases.verify import VERIFY
from medteb_mteb.curation.diversify import DIVERSIFY
from medteb_mteb.curation.edition.assemble import ASSEMBLE
from medteb_mteb.curation.judge.step import JUDGE
from medteb_mteb.curation.labels.consensus import CONSENSUS
from medteb_mteb.curation.labels.review import REVIEW
from medteb_mteb.curation.lineage import HUB
from medteb_mteb.curation.loop.gate import GATE
from medteb_mteb.curation.loop.release import RELEASE
from medteb_mteb.curation.loop.start import APPEND, START
from medteb_mteb.curation.loop.train import TRAIN
from medteb_mteb.curation.pooling import POOL
from medteb_mteb.curation.rubrics.grade import GRADE
from medteb_mteb.curation.rubrics.meta import GRADERS
from medteb_mteb.curation.rubrics.write import ANSWER, RUBRICS
from medteb_mteb.curation.step import Model, StepSettings, marked
from medteb_mteb.curation.sts.step import STS
from medteb_mteb.curation.synthetic.queries import SYNTHESIZE_QUERIES
from medteb_mteb.curation.synthetic.tasks import SYNTHESIZE_TASKS
from medteb_mteb.curation.texts.near_duplicates import DEDUP
from medteb_mteb.curation.training.pairs import PAIRS
from medteb_mteb.curation.training.round_trip import ROUND_TRIP
from medteb_mteb.curation.training.triples import TRIPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.step import Input, Step

#: All steps, in the order in which help and messages list them.
STEPS: dict[str, Step[Any]] = {
    step.name: step
    for step in (
        ANONYMIZE,
        DEDUP,
        DIVERSIFY,
        POOL,
        JUDGE,
        CONSENSUS,
        REVIEW,
        ASSEMBLE,
        STS,
        TRIPLES,
        PAIRS,
        SYNTHESIZE_QUERIES,
        SYNTHESIZE_TASKS,
        ROUND_TRIP,
        SCREEN,
        VERIFY,
        SETTLE,
        RUBRICS,
        ANSWER,
        GRADE,
        GRADERS,
        START,
        APPEND,
        TRAIN,
        GATE,
        RELEASE,
    )
}

#: Folder of a build with its editions, and the training sets beside them.
DATA_FOLDER = "data"
#: A value of the command line in a string of the file, as `{month}`; the value becomes part of paths.
_SLOT = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Planned:
    """A step of a build.

    Attributes:
        name: Name of the step and its folder.
        step: The step.
        settings: Its settings, with paths in place of names of earlier steps.
        sources: Earlier steps that its inputs and models come from, by field; `None` for a path or name.
    """

    name: str
    step: Step[Any]
    settings: StepSettings
    sources: dict[str, list[Planned | None]]


@dataclass(frozen=True)
class Build:
    """A build: the folder that it writes, and its steps in order."""

    root: Path
    steps: list[Planned] = field(default_factory=list)

    def until(self, name: str | None) -> list[Planned]:
        """Return the steps up to one of them, or all.

        Raises:
            MarError: The build has no step of this name.
        """
        names = [planned.name for planned in self.steps]
        if name is not None and name not in names:
            raise MarError(f"The build has no step {name!r}. Its steps are {', '.join(names)}.")
        return self.steps if name is None else self.steps[: names.index(name) + 1]


def load_build(file: str | Path, values: Mapping[str, str] | None = None) -> Build:
    """Read the file of a build.

    `steps` lists the steps, each with its kind under `step`, optionally a `name`, and the options of its
    settings. An input is the name of an earlier step, also with a path inside its folder, or a path relative
    to the file. So is a model, which may also be a name. Any other key of the file is the default of all
    steps that have an option of this name.

    Args:
        file: The YAML file.
        values: Texts that replace `{name}` in strings of the file, by name.

    Raises:
        MarError: The file or an input is missing, or the content is invalid.
    """
    path = Path(file).resolve()
    content = _filled(read_yaml(path), dict(values or {}), path)
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list) or not content["steps"]:
        raise MarError(f"{path} must be a mapping with 'steps', a list of one or more.")
    built = Build(path.parent / Path(str(content.pop("out", None) or "build")).expanduser())
    entries = content.pop("steps")
    used: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), str):
            raise MarError(f"{path}: step {number} must be a mapping with the key 'step'.")
        planned, taken = _planned(dict(entry), content, built, path)
        if planned.name.casefold() in {DATA_FOLDER, *(one.name.casefold() for one in built.steps)}:
            raise MarError(f"{path}: the name {planned.name!r} is taken; give the step another 'name'.")
        if planned.step.writes == "editions" and planned.step in [one.step for one in built.steps]:
            raise MarError(f"{path}: two steps {planned.step.name} write the same editions; use two files.")
        built.steps.append(planned)
        used |= taken
    if unknown := sorted(content.keys() - used):
        raise MarError(f"{path}: no step has the option {unknown[0]!r}.")
    return built


def _filled(content: Any, values: Mapping[str, str], file: Path) -> Any:
    """Put values into the strings of a file.

    Raises:
        MarError: A value is not a plain name, or a name is missing or in no string.
    """
    if wrong := next((name for name, value in values.items() if not _VALUE.fullmatch(value)), None):
        raise MarError(f"--set {wrong}={values[wrong]}: a value has letters, digits, '.', '-' and '_'.")
    used: set[str] = set()

    def put(found: re.Match[str]) -> str:
        used.add(found[1])
        return values.get(found[1], found[0])

    def fill(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: fill(value) for key, value in one.items()}
        if isinstance(one, list):
            return [fill(value) for value in one]
        return _SLOT.sub(put, one) if isinstance(one, str) else one

    filled = fill(content)
    if missing := sorted(used - values.keys()):
        raise MarError(f"{file} has {{{missing[0]}}}; give --set {missing[0]}=VALUE.")
    if unknown := sorted(values.keys() - used):
        raise MarError(f"--set {unknown[0]}: no string of {file} has {{{unknown[0]}}}.")
    return filled


def _planned(
    entry: dict[str, Any], defaults: Mapping[str, Any], built: Build, file: Path
) -> tuple[Planned, set[str]]:
    """Return a step of the file, and the defaults that it has options for."""
    kind = entry.pop("step")
    if kind not in STEPS:
        near = get_close_matches(kind, STEPS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(STEPS)}."
        raise MarError(f"{file}: {kind!r} is not a step. {hint}")
    step = STEPS[kind]
    name = str(entry.pop("name", kind))
    if not name.replace("-", "").replace("_", "").isalnum():
        raise MarError(f"{file}: {name!r} is the name of a folder: letters, digits, - and _.")
    where = f"{file}: step {name!r}"
    if "out" in entry:
        raise MarError(f"{where} has 'out'; it writes to the folder of its name in that of the build.")
    fields = {one.alias or key: key for key, one in step.settings.model_fields.items()}
    taken = {key for key in defaults if key in fields}
    values = {fields.get(key, key): value for key, value in ({**defaults, **entry}).items() if key in fields}
    values |= {key: value for key, value in entry.items() if key not in fields}  # refused below
    sources: dict[str, list[Planned | None]] = {}
    for key, mark in step.inputs.items():
        names = values.get(key)
        found = [_source(str(one), mark, built, file.parent, f"{where}, {key}") for one in _listed(names)]
        found += [(earlier, str(_output(built, earlier))) for earlier in _earlier(built, mark, found)]
        sources[key] = [planned for planned, _ in found]
        if found:
            paths = [path for _, path in found]
            values[key] = paths if isinstance(names, list) or mark.earlier else paths[0]
    for key in marked(step.settings, FromFile):
        if isinstance(values.get(key), str):
            values[key] = read_yaml(file.parent / values[key])
    for key in marked(step.settings, Model):
        names = values.get(key)
        if names is not None:
            models = [_model(str(name), built, file.parent) for name in _listed(names)]
            sources[key] = [planned for planned, _ in models]
            values[key] = [model for _, model in models] if isinstance(names, list) else models[0][1]
    for key, one in step.settings.model_fields.items():
        if key not in step.inputs and _is_path(one.annotation) and isinstance(values.get(key), str):
            values[key] = file.parent / Path(values[key]).expanduser()
    values["out"] = built.root / name
    return Planned(name, step, validated(step.settings, values, where), sources), taken


def _source(value: str, mark: Input, built: Build, base: Path, where: str) -> tuple[Planned | None, str]:
    """Return the earlier step that a value names, if it does, and the path of the data."""
    name, _, inside = value.partition("/")
    earlier = next((planned for planned in built.steps if planned.name == name), None)
    if earlier is not None:
        # A path inside a step's folder may be of any kind; the step that reads it checks.
        if not inside and earlier.step.writes not in mark.kinds:
            raise MarError(
                f"{where}: expected {' or '.join(mark.kinds)}, but {value!r} ({earlier.step.name}) writes "
                f"{earlier.step.writes}."
            )
        return earlier, str(built.root / name / inside) if inside else str(_output(built, earlier))
    path = base / Path(value).expanduser()
    if not value.startswith(HUB) and not path.exists():
        names = ", ".join(planned.name for planned in built.steps) or "none"
        raise MarError(f"{where}: there is no {path}, and no step {value!r} before it (steps: {names}).")
    return None, value if value.startswith(HUB) else str(regular(path))


def _output(built: Build, planned: Planned) -> Path:
    return built.root / planned.name / planned.step.result_file


def _earlier(built: Build, mark: Input, found: list[tuple[Planned | None, str]]) -> Iterator[Planned]:
    """Yield the earlier steps whose tests, or training data, an input also has."""
    for planned in built.steps:
        wanted = (mark.earlier == "tests" and planned.step.writes == "editions") or (
            mark.earlier == "training" and planned.step.trains
        )
        if wanted and not any(one is planned for one, _ in found):
            yield planned


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]


def _model(name: str, built: Build, base: Path) -> tuple[Planned | None, str]:
    """Return the earlier step that makes a model, if one does, and the model's path or name."""
    first, _, inside = name.partition("/")
    for earlier in built.steps:
        if earlier.name == first and (inside or earlier.step.writes == "model"):
            return earlier, str(built.root / name if inside else _output(built, earlier))
    path = base / Path(name).expanduser()
    return None, str(path) if name and os.path.lexists(path) else name


def _is_path(annotation: Any) -> bool:
    return annotation is Path or Path in get_args(annotation)
