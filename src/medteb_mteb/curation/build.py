"""A whole build from one YAML file: steps in order, resumable, with a forecast of its cost.

Every step has a folder of its name in the folder `out`, and `data` holds all editions and training sets, so
that one `MEDTEB_DATA` has them all. A finished step is kept, an interrupted one continues, and one whose
settings or inputs have changed is run again; paid answers are in journals and never requested twice.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import finished_folder, locked, regular, write_json
from mar_st.options import Argument, FromFile, Settings, Switch, read_yaml, validated
from medteb_mteb.curation.anonymize.step import ANONYMIZE
from medteb_mteb.curation.cases.screen import SCREEN
from medteb_mteb.curation.cases.settle import SETTLE
from medteb_mteb.curation.cases.verify import VERIFY
from medteb_mteb.curation.diversify import DIVERSIFY
from medteb_mteb.curation.edition.assemble import ASSEMBLE
from medteb_mteb.curation.forecast import forecast
from medteb_mteb.curation.judge.step import JUDGE
from medteb_mteb.curation.labels.consensus import CONSENSUS
from medteb_mteb.curation.labels.review import REVIEW
from medteb_mteb.curation.lineage import HUB, STEP_FILE, lineage
from medteb_mteb.curation.loop.append import APPEND
from medteb_mteb.curation.loop.gate import GATE
from medteb_mteb.curation.loop.release import RELEASE
from medteb_mteb.curation.loop.start import START
from medteb_mteb.curation.loop.train import TRAIN
from medteb_mteb.curation.pooling import POOL
from medteb_mteb.curation.rubrics.answer import ANSWER
from medteb_mteb.curation.rubrics.criteria import RUBRICS
from medteb_mteb.curation.rubrics.grade import GRADE
from medteb_mteb.curation.rubrics.meta import GRADERS
from medteb_mteb.curation.step import Model, StepSettings, marked, paths_of, perform
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

#: Folder of a build with the editions and training sets of all its steps.
DATA_FOLDER = "data"
LEAKAGE_FILE = "leakage.json"
#: A value of the command line in a string of the file, as `{month}`; the value becomes part of paths.
_SLOT = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class BuildSettings(Settings):
    """Options of a build."""

    file: Annotated[Path, Argument("FILE.yaml")] = Field(description="File of the build: its steps in order.")
    values: Annotated[dict[str, str], Switch("--set")] = Field(
        default_factory=dict, description="NAME=VALUE that replaces {NAME} in the file; may be repeated."
    )
    until: str | None = Field(None, description="Name of the last step to run; default: all steps.")
    dry_run: bool = Field(False, description="Print the steps, requests and cost, and do nothing.")


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
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list):
        raise MarError(f"{path} must be a mapping with 'steps', a list.")
    built = Build(path.parent / Path(content.pop("out", "build")).expanduser())
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


def build(settings: BuildSettings) -> dict[str, Any]:
    """Build a benchmark and training data from one file.

    The steps run in order. The same command continues an interrupted build, and runs steps whose settings or
    inputs have changed again; paid answers are kept. All editions and training sets are in the folder 'data'
    of the build: set MEDTEB_DATA to it to evaluate on them.

    The exit code is 1 if a step stopped, for instance at a budget, or if the training data contain queries of
    the tests.
    """
    planned = load_build(settings.file, settings.values)
    wanted = planned.until(settings.until)
    if settings.dry_run:
        steps = forecast(wanted)
        return {"out": str(planned.root), "steps": steps, "failed": any(one["error"] for one in steps)}
    _check(wanted)
    if wrong := next((one for one in forecast(wanted) if one["error"]), None):
        raise MarError(f"Step {wrong['name']!r}: {wrong['error']}.")
    report: dict[str, Any] = {"out": str(planned.root), "steps": [], "stopped": "", "leakage": None}
    with locked(planned.root):
        for number, one in enumerate(wanted, 1):
            typer.echo(f"[{number}/{len(wanted)}] {one.name}", err=True)
            try:
                record, kept = perform(one.step, one.settings)
            except MarError as error:
                raise MarError(f"Step {one.name!r}: {error}") from error
            counts = record["counts"]
            report["steps"].append({"name": one.name, "step": one.step.name, "kept": kept, **counts})
            if counts["stopped"]:
                return {
                    **report,
                    "stopped": f"Step {one.name!r} stopped: {counts['stopped']}",
                    "failed": True,
                }
        _publish(wanted, planned.root / DATA_FOLDER)
        if len(wanted) == len(planned.steps):
            report["leakage"] = _leakage(planned)
            report["failed"] = bool(report["leakage"] and report["leakage"]["leaks"])
    return report


def _check(steps: list[Planned]) -> None:
    """Look for errors that would otherwise stop a build hours later.

    Raises:
        MarError: Settings are impossible, an API key is missing, or private texts would be sent.
    """
    for planned in steps:
        try:
            if not _lacks_model(planned):
                planned.settings.check()
        except MarError as error:
            raise MarError(f"Step {planned.name!r}: {error}") from error
        if not planned.step.asks or getattr(planned.settings, "already_anonymous", False):
            continue
        for key, mark in planned.step.inputs.items():
            if mark.kinds == ("texts",) and not mark.earlier and not _anonymised(planned, key):
                raise MarError(
                    f"Step {planned.name!r} sends its {key} to an LLM, and no 'anonymize' step comes before "
                    "it. Add one, or set 'already_anonymous: true' if the texts hold no personal data."
                )


def _lacks_model(planned: Planned) -> bool:
    """Return True if an earlier step has yet to make a model; the step is checked when it runs."""
    return any(
        one is not None and not (one.settings.out / STEP_FILE).is_file()
        for key in marked(type(planned.settings), Model)
        for one in planned.sources.get(key, ())
    )


def _anonymised(planned: Planned, key: str) -> bool:
    for source, path in zip(planned.sources[key], paths_of(planned.settings, key), strict=True):
        if source is None:
            if not any(STEPS[one["step"]].anonymises for one in lineage(path) if one["step"] in STEPS):
                return False
        elif (
            not source.step.anonymises
            and source.step.writes == "texts"
            and not all(_anonymised(source, one) for one in source.step.inputs)
        ):
            return False
    return True


def _publish(steps: list[Planned], data: Path) -> None:
    """Put the editions and training sets of all steps into one folder, linked or copied."""
    folders = [
        part
        for planned in steps
        if planned.step.writes == "editions"
        for part in sorted(planned.settings.out.iterdir())
        if part.is_dir()
    ]
    if folders:
        with finished_folder(data) as new:
            for folder in folders:
                shutil.copytree(folder, new / folder.name, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _leakage(planned: Build) -> dict[str, Any] | None:
    """Compare all training data with all tests of a build, and write the report.

    Returns:
        `tests` (number of texts), `leaks`, and for each step that wrote training data its `queries`, `leaks`
        and `examples`; `None` without tests or training data.
    """
    from medteb_mteb.curation.training.leaks import read_held_out, training_queries  # lazy: transformers

    tests = [one.settings.out for one in planned.steps if one.step.writes == "editions"]
    writers = [one for one in planned.steps if one.step.trains]
    if not tests or not writers:
        return None
    training: dict[str, dict[str, Any]] = {}
    held_out = read_held_out(tests)
    for one in writers:
        queries = training_queries(one.settings.out)
        leaks = held_out.leaks(queries)
        examples = [f"{queries[row]} ~ {name}" for row, name in list(leaks.items())[:10]]
        training[one.name] = {"queries": len(queries), "leaks": len(leaks), "examples": examples}
    report = {
        "tests": len(held_out.texts),
        "leaks": sum(one["leaks"] for one in training.values()),
        "training": training,
    }
    write_json(planned.root / LEAKAGE_FILE, report)
    return report


def as_text(report: Mapping[str, Any]) -> str:
    """Return a report or forecast as text: a line per step."""
    steps = report["steps"]
    width = max(len(one["name"]) for one in steps)
    lines = []
    for one in steps:
        state = "finished" if one.get("finished") or one.get("kept") else "to do" if "cost" in one else "done"
        line = f"{one['name']:{width}}  {state:8}  {one['rows']:,} rows"
        if one.get("requests"):
            line += (
                f"; {one['requests']:,} requests, {one['prompt_tokens']:,} tokens in, "
                f"{one['answer_tokens']:,} out, cost {one['cost']:.4g}"
            )
        remarks = [f"error: {one['error']}"] if one.get("error") else []
        remarks += [f"note: {note}" for note in one.get("notes", ())]
        lines += [line, *(f"{'':{width}}  {remark}" for remark in remarks)]
    if "leakage" not in report:
        sums = [
            sum(one[key] for one in steps) for key in ("requests", "prompt_tokens", "answer_tokens", "cost")
        ]
        lines.append(
            "at most {:,} requests, {:,} tokens in, {:,} out, cost {:.4g}; nothing was sent".format(*sums)
        )
        return "\n".join(lines)
    lines.append(f"in {report['out']}")
    if report["stopped"]:
        lines.append(f"{report['stopped']}. The same command continues with this step.")
    leaks = (report["leakage"] or {"leaks": 0})["leaks"]
    if leaks:
        lines.append(
            f"{leaks} training queries are near-duplicates of the build's tests; see "
            f"{Path(report['out'], LEAKAGE_FILE)}. Do not train on these sets as they are."
        )
    return "\n".join(lines)
