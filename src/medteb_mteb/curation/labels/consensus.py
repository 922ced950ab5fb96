"""Combination of the grades of several judges into one label per pair, or none.

The published rule is `unanimous`: a pair is positive if all judges agree that the document answers, negative
if all agree that it does not, and discarded otherwise (MAR paper, section on the benchmark). The other rules
are ours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES, Label, by_pair, check_grades, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.labels.grades import Judgement

__all__ = ["RULES", "ConsensusRule", "consensus", "counts"]

RULES = ("unanimous", "majority", "weighted", "graded")

#: Reasons for which a pair is discarded.
JUDGES_DISAGREE, JUDGE_MISSING = "judges disagree", "a judge is missing"
TIE, GRADES_APART = "tie", "grades too far apart"
SUSPICIOUS_POSITIVE = "positive of a passage that may instruct judges"


@dataclass(frozen=True)
class ConsensusRule:
    """Rule by which grades become a label.

    Attributes:
        kind: `unanimous`: all judges on one side. `majority`: more than half of them. `weighted`: judges
            whose weights sum to more than `share` of the total, on either side. `graded`: the mean grade,
            rounded half up, 4 for S to 0 for D; it is the relevance of a positive, and everything below the
            worst positive grade is 0.
        positive: Grades that count as positive.
        weights: Weight of each judge, for `weighted`; judges that are not named have weight 1.
        share: Share of the weights that must be exceeded, for `weighted`.
        spread: For `graded`, the maximum distance of best and worst grade; above it, a pair is discarded.
        judges: Names of the judges that count; default all of the judging.
        incomplete: Whether a pair that some judges have not graded may be labelled by the other judges.
        keep_suspicious: Whether a passage that looks like an instruction to a judge may be a positive. By
            default it is discarded, since it may have raised its own grade; as a negative it stays.

    Raises:
        BuildError: The rule is invalid.
    """

    kind: Literal["unanimous", "majority", "weighted", "graded"] = "unanimous"
    positive: tuple[str, ...] = POSITIVE_GRADES
    weights: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.5
    spread: int = 1
    judges: tuple[str, ...] = ()
    incomplete: bool = False
    keep_suspicious: bool = False

    def __post_init__(self) -> None:
        check_grades(self.positive)
        repeated = [judge for judge in self.judges if self.judges.count(judge) > 1]
        if repeated:
            raise BuildError(f"The judge {repeated[0]!r} is named twice. Name each judge that counts once.")
        worst = max(GRADES.index(grade) for grade in self.positive)
        if set(self.positive) != set(GRADES[: worst + 1]):
            raise BuildError(
                "Positive grades are the best ones down to some letter, such as S,A; got "
                f"{','.join(self.positive)}."
            )
        if self.kind not in RULES:
            raise BuildError(f"{self.kind!r} is not a rule; choose from {', '.join(RULES)}.")
        if self.weights and self.kind != "weighted":
            raise BuildError(f"Weights are for the rule 'weighted', not for {self.kind!r}.")
        if any(not weight >= 0 for weight in self.weights.values()):
            raise BuildError(f"Weights cannot be negative; got {dict(self.weights)}.")
        if not 0.5 <= self.share < 1:
            raise BuildError(
                f"share must be between 0.5 and 1 (exclusive), so that only one side can have it; got "
                f"{self.share}."
            )

    def options(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as JSON values under `options`, or nothing."""
        default = ConsensusRule()
        names = ("weights", "share", "spread", "judges", "incomplete", "keep_suspicious")
        changed = {
            name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)
        }
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}
        return {"options": listed} if listed else {}

    def label(
        self, query_id: str, document_id: str, grades: Mapping[str, str], judges: Iterable[str]
    ) -> Label:
        """Return the label of one pair.

        Args:
            query_id: The query.
            document_id: The document.
            grades: Grade by judge.
            judges: All judges that should have graded the pair.
        """
        present = {judge: grades[judge] for judge in judges if judge in grades}
        if not present or (len(present) < len(list(judges)) and not self.incomplete):
            return Label(query_id, document_id, None, JUDGE_MISSING)
        if self.kind == "graded":
            values = [value(grade) for grade in present.values()]
            if max(values) - min(values) > self.spread:
                return Label(query_id, document_id, None, GRADES_APART)
            mean = int(sum(values) / len(values) + 0.5)
            worst = min(value(grade) for grade in self.positive)
            return Label(query_id, document_id, mean if mean >= worst else 0)
        weights = {judge: self.weights.get(judge, 1.0) for judge in present}
        total = sum(weights.values())
        yes = sum(weights[judge] for judge, grade in present.items() if grade in self.positive)
        return self._decided(query_id, document_id, yes, total)

    def _decided(self, query_id: str, document_id: str, yes: float, total: float) -> Label:
        no = total - yes
        if self.kind == "unanimous":
            relevance = 1 if not no else 0 if not yes else None
            return Label(query_id, document_id, relevance, "" if relevance is not None else JUDGES_DISAGREE)
        limit = total * (self.share if self.kind == "weighted" else 0.5)
        relevance = 1 if yes > limit else 0 if no > limit else None
        return Label(query_id, document_id, relevance, "" if relevance is not None else TIE)


def consensus(
    judgements: Iterable[Judgement],
    rule: ConsensusRule | None = None,
    *,
    judges: Iterable[str] = (),
    pairs: Iterable[tuple[str, str]] = (),
) -> list[Label]:
    """Return the label of every judged pair, sorted by query and document.

    Args:
        judgements: Judgements of all judges.
        rule: The rule; default the published one.
        judges: All judges of the judging; default those that occur. A judge without a grade for a pair counts
            as missing, however many other judges have graded it.
        pairs: Query and document of the requested pairs, graded or not.

    Raises:
        BuildError: A judge named by the rule has graded nothing.
    """
    rule, judged = rule or ConsensusRule(), list(judgements)
    suspects = {one.pair for one in judged if one.suspicious}
    occur, grades = by_pair(judged)
    counted = sorted({*rule.judges, *rule.weights, *(() if rule.judges else {*occur, *judges})})
    silent = sorted(set(counted) - set(occur))
    if silent:
        raise BuildError(
            f"The judge {silent[0]!r} has graded nothing; there are grades from {', '.join(occur)}. Have it "
            "judge (medteb judge --retry-failed asks again), or name the judges that count (--judge)."
        )
    counted = list(rule.judges) or counted
    everything = {**{pair: {} for pair in pairs}, **grades}
    labels = (rule.label(*pair, everything[pair], counted) for pair in sorted(everything))
    if rule.keep_suspicious:
        return list(labels)
    return [_unless_suspicious(label, suspects) for label in labels]


def _unless_suspicious(label: Label, suspects: set[tuple[str, str]]) -> Label:
    pair = label.query_id, label.document_id
    return Label(*pair, None, SUSPICIOUS_POSITIVE) if label.relevance and pair in suspects else label


def counts(labels: Iterable[Label]) -> dict[str, int]:
    """Count the pairs that are positive, negative, and discarded by reason."""
    totals = Counter(
        f"discarded: {label.reason}"
        if label.relevance is None
        else "positive"
        if label.relevance
        else "negative"
        for label in labels
    )
    return {
        name: totals[name] for name in sorted(totals, key=lambda name: (name.startswith("discarded"), name))
    }
