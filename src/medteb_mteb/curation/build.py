"""A whole build from one YAML file: steps in order, resumable, with a forecast of its cost.

Every step has a folder of its name in the folder `out`. `data` holds all editions, so that one `MEDTEB_DATA`
has them, and the training sets that were written beside them. A finished step is kept, an interrupted one
continues, and one whose settings or inputs have changed is run again; paid answers are in journals and never
requested twice.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import finished_folder, locked, read_record, write_json
from mar_st.options import Argument, Settings, Switch
from medteb_mteb.curation.build_file import DATA_FOLDER, STEPS, load_build
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.lineage import STEP_FILE, lineage
from medteb_mteb.curation.step import Estimate, Model, fingerprint, marked, paths_of, perform, tokens_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from medteb_mteb.curation.build_file import Build, Planned
    from medteb_mteb.curation.step import Kind

LEAKAGE_FILE = "leakage.json"


class BuildSettings(Settings):
    """Options of a build."""

    file: Annotated[Path, Argument("FILE.yaml")] = Field(description="File of the build: its steps in order.")
    values: Annotated[dict[str, str], Switch("--set")] = Field(
        default_factory=dict, description="NAME=VALUE that replaces {NAME} in the file; may be repeated."
    )
    until: str | None = Field(None, description="Name of the last step to run; default: all steps.")
    dry_run: bool = Field(False, description="Print the steps, requests and cost, and do nothing.")


def build(settings: BuildSettings) -> dict[str, Any]:
    """Build a benchmark and training data from one file.

    The steps run in order. The same command continues an interrupted build, and runs steps whose settings or
    inputs have changed again; paid answers are kept. All editions, and the training sets beside them, are
    in the folder 'data' of the build: set MEDTEB_DATA to it to evaluate on them.

    The exit code is 1 if a step stopped, for instance at a budget, or if the training data contain queries of
    the tests.
    """
    planned = load_build(settings.file, settings.values)
    wanted = planned.until(settings.until)
    steps = forecast(wanted)
    if settings.dry_run:
        return {"out": str(planned.root), "steps": steps, "failed": any(one["error"] for one in steps)}
    _check([one for one, about in zip(wanted, steps, strict=True) if not about["finished"]])
    if wrong := next((one for one in steps if one["error"]), None):
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
        _publish(planned.steps, planned.root / DATA_FOLDER)
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
    """Put the editions of all finished steps, and the training sets beside them, into one folder."""
    folders = [
        part
        for planned in steps
        if planned.step.writes == "editions"
        and (read_record(planned.settings.out / STEP_FILE) or {}).get("finished")
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
    from medteb_mteb.curation.training.rows import read_held_out, training_queries  # lazy: transformers

    tests = [one.settings.out for one in planned.steps if one.step.writes == "editions"]
    writers = [one for one in planned.steps if one.step.trains]
    if not tests or not writers:
        return None
    training: dict[str, dict[str, Any]] = {}
    held_out = read_held_out(tests)
    for one in writers:
        queries = training_queries(one.settings.out)
        leaks = held_out.leaks(queries)
        examples = [{"query": queries[row], "near": name} for row, name in list(leaks.items())[:10]]
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


def forecast(steps: list[Planned]) -> list[dict[str, Any]]:
    """Return what the steps would do: `name`, `step`, `finished` and the fields of `Estimate`.

    The output of finished steps is counted. For the others it is an upper bound: no text is dropped, every
    pool is full, texts have the mean length, and no answer is in the journal.
    """
    written: dict[str, Estimate] = {}
    finished: set[str] = set()
    rows = []
    for planned in steps:
        counts = _finished(planned, finished)
        if counts is not None:
            finished.add(planned.name)
            estimate = Estimate(counts["rows"], counts["tokens"], counts["queries"])
        else:
            inputs = _inputs(planned, written)
            estimate = next(iter(inputs.values()))
            if planned.step.estimate is not None:
                estimate = planned.step.estimate(planned.settings, inputs)
        written[planned.name] = estimate
        about = {"name": planned.name, "step": planned.step.name, "finished": counts is not None}
        rows.append({**about, **asdict(estimate)})
    return rows


def _finished(planned: Planned, finished: Container[str]) -> dict[str, Any] | None:
    """Return the counts of a step that a build would keep as it is."""
    inputs = [one for some in planned.sources.values() for one in some if one is not None]
    record = read_record(planned.settings.out / STEP_FILE)
    if record is None or not record["finished"] or not all(one.name in finished for one in inputs):
        return None
    same = record["fingerprint"] == fingerprint(planned.step, planned.settings)
    counts: dict[str, Any] = record["counts"]
    return counts if same else None


def _inputs(planned: Planned, written: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the sizes of a step's inputs by field; several inputs of one field are summed."""
    sizes = {}
    for key, mark in planned.step.inputs.items():
        sources, paths = planned.sources[key], paths_of(planned.settings, key)
        parts = [
            _count(mark.kinds[0], path, getattr(planned.settings, "columns", None))
            if source is None
            else written[source.name]
            for source, path in zip(sources, paths, strict=True)
        ]
        sizes[key] = Estimate(
            sum(part.rows for part in parts),
            sum(part.tokens for part in parts),
            sum(part.queries for part in parts),
        )
    return sizes


def _count(kind: Kind, path: str, columns: dict[str, str] | None) -> Estimate:
    """Count the items of a file or folder that the user gave."""
    if kind == "texts":
        tokens = [tokens_of("\n".join(filter(None, text.fields))) for text in read_texts(path, columns)]
        return Estimate(len(tokens), sum(tokens))
    if kind in ("file", "sheet", "editions", "agreement"):
        return Estimate(0)
    if kind == "cases":
        advice = [len(row.values.get("advice") or ()) for row in read_rows(path, table="cases")]
        return Estimate(len(advice), queries=sum(advice))
    rows, queries = 0, set()
    named = Path(path, f"{kind}.jsonl")  # of a step's folder, which holds other files, too
    for row in read_rows(named if named.is_file() else path):
        several = row.values.get("corpus-ids")
        rows += len(several) if isinstance(several, list) else 1
        queries.add(row.values.get("query-id", row.values.get("query")))
    return Estimate(rows, queries=len(queries))
