"""Steps of a build: one function and one settings model each; all else is derived from these two.

A step reads files or folders and writes one folder. Its command, its fields in the file of `medteb build`,
its dry run and its resumption come from `Step`. The folder of a step holds `step.json` beside the data::

    step         name of the step
    version      its version
    settings     all settings that the output depends on
    inputs       path, relative to the folder, and digest of each input
    models       digests of models in folders
    fingerprint  digest of all these but the paths
    finished     false while it runs; a run of the same fingerprint then continues with what is there
    counts       see `Counts`
    provenance   see `Counts`
    result       digest of the output
    before       the same of the steps that made its inputs, the first one first
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import typer
from pydantic import AfterValidator, BaseModel, Field

from mar_st.errors import MarError
from mar_st.files import clear, locked, read_json, read_record, write_json
from mar_st.options import Argument, Settings, command
from medteb_mteb.curation.lineage import HUB, STEP_FILE, digest_of, folder_digest, lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

#: Kinds of data that steps read and write.
Kind: TypeAlias = Literal[
    "texts", "pools", "judgements", "labels", "editions", "pairs", "triples", "alignment", "sheet", "file",
    "cases", "rubrics", "answers", "verdicts", "agreement", "model",
]  # fmt: skip
#: Bytes of UTF-8 that count as a token. A Chinese character has three, so it counts as one token; today's
#: tokenizers need 0.6 to 1.0. Three English letters count as one; tokenizers put about four into one.
BYTES_PER_TOKEN = 3

#: Seed of all random choices of a build.
SEED = 42

S = TypeVar("S", bound="StepSettings")


def tokens_of(text: str) -> int:
    """Return the estimated number of tokens of a text, rather too high than too low."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN)


class Input:
    """Marks a field of one path or several: `Annotated[Path, Argument(), Input("texts")]`.

    In the file of a build, the field names an earlier step or a path.

    Args:
        kinds: Kinds of data that it takes.
        earlier: In a build, add the output of all earlier steps that write tests, or training data.
    """

    def __init__(self, *kinds: Kind, earlier: Literal["tests", "training"] | None = None) -> None:
        self.kinds, self.earlier = kinds, earlier


def Runtime() -> Any:  # noqa: N802 - a mark, like the others
    """Mark a field that changes how a step runs, but not what it writes."""
    return Field(exclude=True)


class Model:
    """Marks a field of one model or several: a folder, a file of a run, or a name, which is kept as it is.

    In the file of a build, the field may also name an earlier step that writes a model, or a path inside the
    folder of an earlier step.
    """


def _some(test: float) -> float:
    if 1 <= test < 2:
        raise ValueError(f"{test:g} is a test of one query; give a share below 1, such as 0.3, or a number")
    return test


#: Number of test queries, or their share of all if below 1.
TestSize: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_some)]


class StepSettings(Settings):
    """Options of a step: base class."""

    out: Annotated[Path, Argument(last=True), Runtime()] = Field(description="Folder to write.")

    def check(self) -> None:
        """Look for what would fail only later, such as a missing API key.

        Raises:
            MarError: The step cannot be run with these settings.
        """


@dataclass(frozen=True)
class Estimate:
    """Size of data, and what a step will ask to write them; an upper bound unless they exist.

    Attributes:
        rows: Number of texts, pairs or triples.
        tokens: Tokens of all texts.
        queries: Number of queries of the pairs, or of pieces of advice of the cases.
        requests: Requests to LLMs.
        prompt_tokens: Tokens of their prompts.
        answer_tokens: Tokens of the answers.
        cost: Price of the requests.
        error: Why the step will fail, such as a test that would be too small.
    """

    rows: int
    tokens: int = 0
    queries: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    cost: float = 0.0
    error: str = ""

    @property
    def mean_text(self) -> str:
        """Return a text of the mean length."""
        return "字" * -(-self.tokens // max(1, self.rows))


@dataclass(frozen=True)
class Counts:
    """What a step has written.

    Attributes:
        rows: Number of texts, pairs or triples.
        tokens: Estimated tokens of all texts.
        queries: Number of queries of the pairs, or of pieces of advice of the cases.
        details: Further results to report, as JSON values.
        notes: Remarks for the user.
        stopped: Why the step ended early, for instance at a budget; the next run continues.
        provenance: Entries for the `provenance.json` of an edition that is made of this data, by key:
            `sources`, `anonymisers`, `retrievers`, `judges`, `writers`, `consensus`.
    """

    rows: int
    tokens: int = 0
    queries: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stopped: str = ""
    provenance: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Step(Generic[S]):
    """One step.

    Attributes:
        name: Name of its command and in the file of a build.
        settings: Its options.
        run: Writes `settings.out`; a killed run is repeated with the same folder, so it continues from there.
        writes: Kind of data that it writes.
        estimate: Returns what it will write and ask, from the sizes of its inputs by field; default: as
            many rows as its first input.
        result_file: File in its folder that later steps read; empty for the folder itself.
        trains: True if the output is, or holds, training data.
        anonymises: True if the texts may be sent to an LLM whatever the input is.
        asks: True if it sends texts of its inputs to an LLM.
        alone: False if it is of use in a build only, so that it has no command.
        version: Part of the fingerprint, such as the version of a prompt.
    """

    name: str
    settings: type[S]
    run: Callable[[S], Counts]
    writes: Kind
    estimate: Callable[[S, Mapping[str, Estimate]], Estimate] | None = None
    result_file: str = ""
    trains: bool = False
    anonymises: bool = False
    asks: bool = False
    alone: bool = True
    version: str = ""

    @property
    def inputs(self) -> dict[str, Input]:
        """Return the marks of the fields that are inputs."""
        return marked(self.settings, Input)


M = TypeVar("M")


def marked(model: type[BaseModel], kind: type[M]) -> dict[str, M]:
    """Return the fields of a model that have a mark of a class, with the mark."""
    return {
        name: mark
        for name, one in model.model_fields.items()
        for mark in one.metadata
        if isinstance(mark, kind)
    }


def paths_of(settings: BaseModel, name: str) -> list[str]:
    """Return the paths of an input, none if it is not given."""
    value = getattr(settings, name)
    return [str(one) for one in (value if isinstance(value, list | tuple) else [value]) if one is not None]


def perform(step: Step[S], settings: S) -> tuple[dict[str, Any], bool]:
    """Run a step in its folder, or return what it has recorded if it was finished with the same settings.

    If settings or inputs have changed since, the folder is emptied and the step is run again.

    Returns:
        The content of `step.json`, and whether an earlier run had finished the step.

    Raises:
        MarError: The step cannot be run, or the folder has other files or is in use.
    """
    folder, depends = settings.out, _depends(step, settings)
    mark = _mark(depends)
    for path in (path for name in step.inputs for path in paths_of(settings, name)):
        ours, other = folder.resolve(), Path(path).resolve()
        if Path(path).exists() and (ours.is_relative_to(other) or other.is_relative_to(ours)):
            raise MarError(f"{folder} and the input {path} overlap; give another folder.")
    with locked(folder):
        record = read_record(folder / STEP_FILE)
        others = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if record is None and others:
            raise MarError(f"{folder} holds {others[0]}, which no step has written; give another folder.")
        same = record is not None and record["fingerprint"] == mark
        if record is not None and same and record["finished"]:
            return record, True
        settings.check()
        if record is not None and not same:
            if record["finished"] and record["result"] != folder_digest(folder):
                raise MarError(
                    f"Files of {folder} were changed by hand; move them away, or delete the folder."
                )
            clear(folder)
        paths = [path for name in step.inputs for path in paths_of(settings, name)]
        record = {**depends, "fingerprint": mark, "finished": False, "before": _before(paths)}
        write_json(folder / STEP_FILE, record)
        start = time.monotonic()
        counts = step.run(settings)
        record |= {
            "finished": not counts.stopped,
            "counts": {key: value for key, value in asdict(counts).items() if key != "provenance"},
            "provenance": counts.provenance,
            "result": folder_digest(folder),
            "seconds": round(time.monotonic() - start, 1),
        }
        write_json(folder / STEP_FILE, record)
        return record, False


def fingerprint(step: Step[S], settings: S) -> str:
    """Return the digest (64 hex digits) of all that the output of a step depends on."""
    return _mark(_depends(step, settings))


def _depends(step: Step[S], settings: S) -> dict[str, Any]:
    """Return all that the output of a step depends on, as its record has it."""
    root = settings.out.resolve()
    return {
        "step": step.name,
        "version": step.version,
        "settings": described(settings),
        "inputs": {
            name: [
                {"path": _relative(path, root), "digest": digest_of(path)}
                for path in paths_of(settings, name)
            ]
            for name in step.inputs
        },
        "models": _model_digests(_models(settings)),
    }


def _model_digests(models: Iterable[str]) -> dict[str, str]:
    """Return the digests of models; empty for the name of one that is not in a folder."""
    return {name: digest_of(name) if Path(name).exists() else "" for name in models}


def _relative(path: str, root: Path) -> str:
    return path if path.startswith(HUB) else os.path.relpath(Path(path).resolve(), root)


def _mark(depends: Mapping[str, Any]) -> str:
    inputs = {name: [one["digest"] for one in some] for name, some in depends["inputs"].items()}
    content = {**{key: depends[key] for key in ("step", "version", "settings", "models")}, "inputs": inputs}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def unchanged(folder: Path) -> bool:
    """Return True if the step of a folder is finished, and its files and inputs are those of its record."""
    record = read_record(folder / STEP_FILE)
    if record is None or not record["finished"] or record["result"] != folder_digest(folder):
        return False
    try:
        same = all(digest_of(path) == one["digest"] for path, one in _inputs(folder, record))
        return same and record["models"] == _model_digests(record["models"])
    except MarError:  # an input is missing, or not finished
        return False


def accept(folder: Path) -> None:
    """Adapt the record of a finished step to its files, inputs and models, which were changed on purpose.

    So the step stays finished. Steps that made its inputs come first.
    """
    record: dict[str, Any] = read_json(folder / STEP_FILE)
    paths = []
    for path, one in _inputs(folder, record):
        one["digest"] = digest_of(path)
        paths.append(path)
    record["models"] = _model_digests(record["models"])
    record |= {"fingerprint": _mark(record), "before": _before(paths), "result": folder_digest(folder)}
    write_json(folder / STEP_FILE, record)


def _inputs(folder: Path, record: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the path and the entry of each input of a step."""
    for one in (one for some in record["inputs"].values() for one in some):
        yield one["path"] if one["path"].startswith(HUB) else str(folder.resolve() / one["path"]), one


def _models(settings: BaseModel) -> Iterator[str]:
    """Yield the names of all models, also those of the settings inside, such as a judge's cross-encoder."""
    marks = marked(type(settings), Model)
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, BaseModel):
                yield from _models(one)
            elif name in marks and one is not None:
                yield str(one)


def described(settings: BaseModel) -> dict[str, Any]:
    """Return the settings that an output depends on, as JSON, without inputs and `Runtime` fields."""
    return settings.model_dump(mode="json", exclude=set(marked(type(settings), Input)))


def _before(paths: Iterable[str]) -> list[dict[str, Any]]:
    records = (one for path in paths for one in lineage(path))
    return list({one["fingerprint"]: one for one in records}.values())


def add_step(app: typer.Typer, step: Step[Any], *, group: str | None = None) -> None:
    """Add the command of a step, with the fields of its settings as options.

    The exit code is 1 if the step stopped early.
    """

    def run(settings: StepSettings) -> dict[str, Any]:
        record, kept = perform(step, settings)
        counts = record["counts"]
        for note in counts["notes"]:
            typer.echo(f"note: {note}", err=True)
        if counts["stopped"]:
            typer.echo(f"medteb: stopped: {counts['stopped']}. Run the same command to continue.", err=True)
        return {
            "out": str(settings.out),
            "finished before": kept,
            **counts,
            "failed": bool(counts["stopped"]),
        }

    run.__doc__ = step.run.__doc__
    command(app, step.name, step.settings, run, show=as_text, group=group)


def as_text(result: Mapping[str, Any]) -> str:
    """Return the counts of a step as text: the number of rows, then the details, a line each."""
    lines = [f"{result['rows']:,} rows in {result['out']}"]
    if result["finished before"]:
        lines[0] += " (finished before)"
    lines += [
        f"  {key}: {_short(value)}" for key, value in result["details"].items() if value not in ({}, [])
    ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(one)}" for key, one in value.items() if one not in ({}, []))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
