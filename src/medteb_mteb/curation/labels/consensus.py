"""Step `consensus`: the grades of several judges become one label per pair, or none.

The published rule is `unanimous`: a pair is positive if all judges agree that the document answers, negative
if all agree that it does not, and discarded otherwise (MAR paper, section on the benchmark). The other rules
are ours.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mar_st.errors import MarError
from mar_st.files import write_json
from mar_st.options import Argument, Settings, Switch
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.labels.grades import GRADES, Label, by_pair, read_judgements, value
from medteb_mteb.curation.step import Counts, Input, Step, StepSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.labels.grades import Judgement

#: Reasons for which a pair is discarded.
JUDGES_DISAGREE, JUDGE_MISSING = "judges disagree", "a judge is missing"
TIE, GRADES_APART = "tie", "grades too far apart"
#: Largest distance between the grades of a pair for the rule `graded`.
MAX_SPREAD = 1
SUSPICIOUS_POSITIVE = "positive of a passage that may instruct judges"


class ConsensusRule(Settings):
    """Rule by which grades become a label.

    `unanimous`: all judges on one side. `majority`: more than half of them. `graded`: the mean grade, rounded
    half up, 4 for S to 0 for D; it is the relevance of a positive, and everything below the worst positive
    grade is 0.
    """

    rule: Literal["unanimous", "majority", "graded"] = Field("unanimous", description="Rule of agreement.")
    worst_positive: Literal["S", "A", "B", "C"] = Field(
        "A", description="Worst grade that counts as positive; the better ones do, too."
    )
    only: Annotated[tuple[str, ...], Switch("--judge")] = Field(
        (), description="Judge that counts; may be repeated. Default: all judges."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.only)) < len(self.only):
            raise ValueError("a judge is named twice")
        return self

    @property
    def positive(self) -> tuple[str, ...]:
        """Return the grades that count as positive, best first."""
        return GRADES[: GRADES.index(self.worst_positive) + 1]

    def label(self, grades: Mapping[str, str], judges: Iterable[str]) -> tuple[int | None, str]:
        """Return the relevance of one pair, `None` if it is discarded, and why.

        Args:
            grades: Grade by judge.
            judges: All judges that should have graded the pair.
        """
        wanted = list(judges)
        present = {judge: grades[judge] for judge in wanted if judge in grades}
        if not present or len(present) < len(wanted):
            return None, JUDGE_MISSING
        if self.rule == "graded":
            values = [value(grade) for grade in present.values()]
            if max(values) - min(values) > MAX_SPREAD:
                return None, GRADES_APART
            mean = int(sum(values) / len(values) + 0.5)
            return (mean if mean >= value(self.worst_positive) else 0), ""
        yes, total = sum(grade in self.positive for grade in present.values()), len(present)
        if self.rule == "unanimous":
            return (1, "") if yes == total else (0, "") if not yes else (None, JUDGES_DISAGREE)
        return (1, "") if 2 * yes > total else (0, "") if 2 * yes < total else (None, TIE)


def consensus(judgements: Iterable[Judgement], rule: ConsensusRule | None = None) -> list[Label]:
    """Return the label of every pair, sorted by query and document.

    Args:
        judgements: Judgements of all judges; a missing one counts, however many others have graded the pair.
        rule: The rule; default the published one.

    Raises:
        MarError: A judge that counts has graded nothing.
    """
    rule, judged = rule or ConsensusRule(), list(judgements)
    suspects = {one.pair for one in judged if one.suspicious}
    judges, grades = by_pair(judged)
    graded = sorted({judge for given in grades.values() for judge in given})
    counted = list(rule.only) or judges
    silent = sorted(set(counted) - set(graded))
    if silent:
        raise MarError(
            f"The judge {silent[0]!r} has graded nothing; there are grades from {', '.join(graded)}. Have it "
            "judge (delete the folder of medteb judge and run it again), or name the judges that count "
            "(--judge)."
        )
    labels = []
    for pair, given in grades.items():
        relevance, reason = rule.label(given, counted)
        if relevance and pair in suspects:
            relevance, reason = None, SUSPICIOUS_POSITIVE
        labels.append(Label(*pair, relevance, reason))
    return labels


def counts(labels: Iterable[Label]) -> dict[str, int]:
    """Count the pairs that are positive, negative, and discarded by reason."""
    totals = Counter(
        f"discarded: {one.reason}" if one.relevance is None else "positive" if one.relevance else "negative"
        for one in labels
    )
    return dict(sorted(totals.items(), key=lambda item: (item[0].startswith("discarded"), item[0])))


class ConsensusSettings(StepSettings, ConsensusRule):
    """Options of the step."""

    source: Annotated[Path, Argument("JUDGEMENTS"), Input("judgements")] = Field(
        alias="in", description="Judgements: the folder of 'medteb judge', or a JSONL file."
    )


def label_pairs(settings: ConsensusSettings) -> Counts:
    """Combine the grades of several judges into labels.

    Writes labels.jsonl, and agreement.json with the agreement of the judges.
    """
    from medteb_mteb.curation.labels.agreement import agreement  # lazy: numpy

    judged = list(read_judgements(settings.source))
    labels = consensus(judged, settings)
    counted = [one for one in judged if not settings.only or one.judge in settings.only]
    try:
        report: dict[str, Any] = agreement(counted, positive=settings.positive).to_json()
    except MarError as error:  # a single judge gives labels but no agreement
        report = {"note": str(error)}
    missing = Counter(one.judge for one in judged if one.grade is None)
    judges = settings.only or sorted({one.judge for one in judged})
    report["missing"] = {judge: missing[judge] for judge in judges}
    rule = settings.model_dump(mode="json", include=set(ConsensusRule.model_fields))
    content = {**rule, "labels": counts(labels), "agreement": report}
    write_rows(settings.out / "labels.jsonl", (label.to_json() for label in labels))
    write_json(settings.out / "agreement.json", content)
    recorded = {**content, "positive": list(settings.positive), "agreement": report.get("labels", {})}
    return Counts(
        len(labels),
        queries=len({label.query_id for label in labels}),
        details={
            "labels": content["labels"],
            "missing": report["missing"],
            "agreement (positive or not)": report.get("labels", {}),
            "agreement (grades)": report.get("grades", {}),
            "positive": report.get("positive_rate", {}),
        },
        notes=(report["note"],) if "note" in report else (),
        provenance={"consensus": [recorded]},
    )


CONSENSUS = Step("consensus", ConsensusSettings, label_pairs, "labels")
