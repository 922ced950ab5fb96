"""The step `graders`: how far graders agree with people, on answers that people have labelled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, field_validator

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import write_json, write_text
from mar_st.options import Argument, FromFile
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.llm.settings import PrivateSettings, added
from medteb_mteb.curation.rubrics.files import Text, made_of
from medteb_mteb.curation.rubrics.grade import AGREEMENT, grading_estimate
from medteb_mteb.curation.rubrics.graders import VERSION, Grader, Item, Prompted, as_met
from medteb_mteb.curation.rubrics.people import NONE, Labelled, among_people, calibrated_mean, with_people
from medteb_mteb.curation.step import Counts, Estimate, Input, Step
from medteb_mteb.report.page import markdown_table, with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

#: Name of the category of all statements, and of people in the column of graders.
ALL, PEOPLE = "all", "people"
#: Heading of each estimate.
COLUMNS = {
    "kappa": "kappa",
    "ac1": "AC1",
    "single": "kappa with one person",
    "mean": "mean",
    "calibrated": "calibrated mean",
}


class GradersSettings(PrivateSettings):
    """Options of `medteb graders`."""

    labelled: Annotated[Path, Argument(), Input("file")] = Field(
        description="Rows with question, answer, criterion, labels by rater; optionally category, verdicts."
    )
    graders: Annotated[tuple[Grader, ...], FromFile()] = Field(
        (), description="YAML file of one or several graders; default: only those of the column verdicts."
    )

    @field_validator("graders", mode="before")
    @classmethod
    def _of_one(cls, value: Any) -> Any:
        """Take the entry of one grader, too."""
        return [value] if isinstance(value, dict) else value

    def check(self) -> None:
        """Check that each grader has its own name, and that the keys of the LLMs are set."""
        names = [PEOPLE, *(one.name for one in self.graders)]
        if len(set(names)) < len(names):
            raise MarError(
                f"Each grader needs its own name, other than {PEOPLE!r}; got {', '.join(names[1:])}."
            )
        for one in self.graders:
            if isinstance(one, Prompted):
                one.key()


def _by_name(given: Any) -> dict[str, bool]:
    """Return labels by name; those of a list are named by their numbers, and missing ones left out."""
    if isinstance(given, list):
        given = {str(number): label for number, label in enumerate(given, 1)}
    if not isinstance(given, dict | None):
        raise ValueError("expected a list, or labels by name")
    read = {str(name): as_met(label) for name, label in (given or {}).items() if label not in (None, "")}
    if None in read.values():
        raise ValueError("a label is none of true, false, entailment, neutral, contradiction")
    return {name: bool(met) for name, met in read.items()}


class Statement(BaseModel):
    """A criterion for an answer, with the labels of people.

    A label is true, 1, met, entailment or 是, or else false, 0, not met, neutral, contradiction or 否.

    Attributes:
        question: The question.
        answer: The answer.
        criterion: The criterion.
        category: What the criterion is about; empty if not given.
        labels: Whether it is met, by rater.
        verdicts: The same by graders that ran elsewhere.
    """

    question: Text
    answer: Text
    criterion: Text
    category: Annotated[str, BeforeValidator(lambda given: str(given or ""))] = ""
    labels: Annotated[dict[str, bool], BeforeValidator(_by_name)] = Field(default_factory=dict)
    verdicts: Annotated[dict[str, bool], BeforeValidator(_by_name)] = Field(default_factory=dict)


def read_labelled(source: Path) -> list[Statement]:
    """Return the statements of a source.

    Raises:
        MarError: Rows are unusable, or no rater has labelled any.
    """
    found = list(read_rows(source, made_of(Statement)))
    if not any(one.labels for one in found):
        raise MarError(
            f'{source} has no labels of people. Give labels, such as {{"li": true, "wang": false}}.'
        )
    return found


def graders(settings: GradersSettings) -> Counts:
    """Measure how far graders agree with people.

    Writes `agreement.json`, which 'medteb grade --agreement' reads, its table `agreement.md`, and
    `verdicts.jsonl`. Rows without labels count for the calibrated mean only.
    """
    statements = read_labelled(settings.labelled)
    if any(isinstance(one, Prompted) for one in settings.graders):
        settings.refuse_raw(settings.labelled)
    places: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(statements):
        places.setdefault((one.question, one.answer), []).append(place)
    items = [
        Item(str(number), *key, tuple(statements[place].criterion for place in some))
        for number, (key, some) in enumerate(places.items())
    ]
    verdicts = _columns([one.verdicts for one in statements])
    if taken := verdicts.keys() & {one.name for one in settings.graders}:
        raise MarError(f"{settings.labelled} has verdicts of {min(taken)!r}; give the grader another name.")
    about: dict[str, dict[str, Any]] = {name: {"identity": ""} for name in verdicts}
    for grader in settings.graders:
        graded = grader.grade(items, settings.out)
        if graded.stopped:
            return Counts(0, details=graded.details, stopped=f"{grader.name}: {graded.stopped}")
        found = np.full(len(statements), NONE)
        for item, some in zip(items, places.values(), strict=True):
            found[some] = [NONE if one.met is None else one.met for one in graded.verdicts[item.key]]
        verdicts[grader.name] = found
        about[grader.name] = {"identity": grader.identity(), **graded.details, **graded.provenance}
    if not verdicts:
        raise MarError("There is no grader. Give --graders, or a column verdicts.")
    report = _report(statements, verdicts, about)
    write_json(settings.out / AGREEMENT, report)
    write_text(settings.out / "agreement.md", _page(report))
    write_rows(
        settings.out / "verdicts.jsonl",
        (
            {"question": one.question, "criterion": one.criterion}
            | {name: None if rows[place] == NONE else bool(rows[place]) for name, rows in verdicts.items()}
            for place, one in enumerate(statements)
        ),
    )
    overall = {one["grader"]: one for one in report["rows"] if one["category"] == ALL}
    kappas = {name: _shown(overall[name]["kappa"]) for name in verdicts}
    details = {"raters": report["raters"], "kappa": kappas}
    details["people among each other"] = _shown(overall[PEOPLE]["single"])
    return Counts(len(statements), details=details)


def _columns(rows: Sequence[Mapping[str, bool]]) -> dict[str, NDArray[np.int64]]:
    """Return labels by name: 1, 0 or `NONE` by row."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([int(row.get(name, NONE)) for row in rows]) for name in names}


def _report(
    statements: Sequence[Statement], verdicts: Mapping[str, NDArray[np.int64]], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of `agreement.json`; an estimate is `[value, low, high]`."""
    raters = _columns([one.labels for one in statements])
    labels = np.stack([raters[name] for name in sorted(raters)], axis=1)
    _, questions = np.unique([one.question for one in statements], return_inverse=True)
    data = Labelled(labels, questions)
    of_statement = np.array([one.category for one in statements])
    categories = {ALL: np.ones(len(statements), dtype=bool)}
    categories |= {one: of_statement == one for one in sorted(set(of_statement)) if one not in ("", ALL)}
    rows = [
        {"grader": PEOPLE, "category": name, **_people(data[items])} for name, items in categories.items()
    ]
    rows += [
        {"grader": grader, "category": name, **_grader(data[items], given[items])}
        for grader, given in verdicts.items()
        for name, items in categories.items()
    ]
    counts = {"raters": len(raters), "questions": data.number, "statements": len(statements)}
    return {**counts, "graders": dict(about), "rows": rows}


def _people(data: Labelled) -> dict[str, Any]:
    person = data.majority(range(data.labels.shape[1]))
    labelled = int((data.labels != NONE).any(axis=1).sum())
    return {"statements": labelled, "single": among_people(data).rounded(), "mean": _mean(person)}


def _grader(data: Labelled, verdicts: NDArray[np.int64]) -> dict[str, Any]:
    estimates = {**with_people(data, verdicts), "calibrated": calibrated_mean(data, verdicts)}
    return {
        "statements": len(verdicts),
        "no verdict": int((verdicts == NONE).sum()),
        "mean": _mean(verdicts),
        **{name: one.rounded() for name, one in estimates.items()},
    }


def _mean(verdicts: NDArray[np.int64]) -> list[float | None]:
    known = verdicts[verdicts != NONE]
    return [round(float(known.mean()), 4) if len(known) else None, None, None]


def _shown(row: Sequence[float | None]) -> str:
    value, low, high = row
    return with_interval(value, low, high, ".2f")


def _page(report: Mapping[str, Any]) -> str:
    """Return the content of `agreement.json` as Markdown."""
    rows = [("grader", "category", "statements", *COLUMNS.values())]
    rows += [
        (
            one["grader"],
            one["category"],
            f"{one['statements']:,}",
            *(_shown(one[key]) if key in one else "" for key in COLUMNS),
        )
        for one in report["rows"]
    ]
    about = (
        f"{report['statements']:,} statements about answers to {report['questions']:,} questions, labelled "
        f"by {report['raters']} people. Cohen's kappa and Gwet's AC1 are with the majority of people, beside "
        "them the mean of Cohen's kappa with each person; that of people is among each other. The mean is "
        "the share of statements that are met; calibrated, that of the grader is corrected by the labelled "
        "statements. 95 % nested bootstrap intervals over questions and raters."
    )
    return "\n\n".join(["# Agreement with people", about, markdown_table(rows)]) + "\n"


def _estimate(settings: GradersSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate one request for each answer and LLM, of an assumed length."""
    del sizes
    statements = read_labelled(settings.labelled)
    answers = len({(one.question, one.answer) for one in statements})
    return added([grading_estimate(one, answers) for one in settings.graders], len(statements))


GRADERS = Step(
    "graders",
    GradersSettings,
    graders,
    "agreement",
    estimate=_estimate,
    result_file=AGREEMENT,
    asks=True,
    version=VERSION,
)
