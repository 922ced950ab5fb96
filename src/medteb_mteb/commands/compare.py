"""`medteb compare`: systems by results from any source; `medteb site`: results as a folder of pages."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree as ET

from pydantic import Field, model_validator

from mar_st.errors import MarError
from mar_st.files import counted, write_text
from mar_st.options import Argument, Settings

if TYPE_CHECKING:
    from medteb_mteb.compare.analysis import Analysis
    from medteb_mteb.report.paired import Compared
    from medteb_mteb.site import Outcome

_PAIRS = (
    "task", "first", "second", "difference", "low", "high", "p", "p after Holm", "wins", "ties", "losses",
    "detectable",
)  # fmt: skip


class SourceSettings(Settings):
    """Where results and the data of their tasks are."""

    results: Annotated[tuple[Path, ...], Argument()] = Field(
        min_length=1,
        description="Folders of medteb run, mteb or HAKARI-Bench; rankings *.trec, *.run or *.json.",
    )
    data: tuple[Path, ...] = Field(
        (), description="Data folder of a task, for slices of its queries; may be repeated."
    )
    qrels: Path | None = Field(None, description="Judgements of rankings: TREC's format or a table.")


class CompareSettings(SourceSettings):
    """Options of a comparison."""

    baseline: str | None = Field(None, description="Compare all with this system; default: every two.")
    fail_if_worse: str | None = Field(
        None, description="Compare all with this system, and exit with 1 if one is significantly worse."
    )
    junit: Path | None = Field(None, description="Write the outcome of --fail-if-worse as a JUnit file.")
    markdown: bool = Field(False, description="Print Markdown.")
    latex: bool = Field(False, description="Print LaTeX tables (with the package booktabs).")
    csv: bool = Field(False, description="Print the pairs as CSV.")

    @model_validator(mode="after")
    def _fits(self) -> CompareSettings:
        if self.baseline and self.fail_if_worse:
            raise ValueError("--baseline and --fail-if-worse name the same thing; give one of them")
        if self.junit and not self.fail_if_worse:
            raise ValueError("--junit needs --fail-if-worse")
        if self.markdown + self.latex + self.csv > 1:
            raise ValueError("give one of --markdown, --latex and --csv")
        return self


@dataclass(frozen=True)
class Comparisons:
    """Outcome of a comparison.

    Attributes:
        analysis: What the results show.
        settings: The options.
        pairs: All pairs that were compared, by column.
    """

    analysis: Analysis
    settings: CompareSettings
    pairs: list[dict[str, Any]]

    @property
    def worse(self) -> list[dict[str, Any]]:
        """Return the pairs whose first is significantly worse than the system of `fail_if_worse`."""
        return [pair for pair in self.pairs if self.settings.fail_if_worse and _is_worse(pair)]

    @property
    def failed(self) -> bool:
        """Return True if a system is worse than the one that none may be worse than."""
        return bool(self.worse)

    def to_json(self) -> dict[str, Any]:
        """Return scores, comparisons, slices and bounds as JSON values."""
        analysis = self.analysis
        return {
            **analysis.table.scores_to_json(),
            "compared": [
                {"task": task, "questions": one.questions, "tie_groups": one.groups}
                for task, one in analysis.compared
            ],
            "pairs": self.pairs,
            "slices": [
                {
                    "task": one.task, "by": one.by, "value": one.value, "queries": one.queries,
                    "scores": {
                        name: {"score": score, "low": low, "high": high}
                        for name, (score, low, high) in one.scores.items()
                    },
                }
                for one in analysis.slices
            ],
            "bounds": [
                {"system": system, "task": task, **bounds._asdict()}
                for (system, task), bounds in analysis.bounds.items()
            ],
            "worse": self.worse,
        }  # fmt: skip


def compare(settings: CompareSettings) -> Comparisons:
    """Compare systems by the results that you have.

    Reads folders of `medteb run` and mteb, result files of HAKARI-Bench, and rankings with judgements. Prints
    scores with tie groups, every pair with a paired test, slices of the queries where the data are at hand,
    and what unjudged documents could change. The tests need scores per query: those of `medteb run`, or
    rankings. Questions that several tasks share count once in the average.
    """
    from medteb_mteb.compare.analysis import Analysis  # lazy: scipy
    from medteb_mteb.compare.read import read_results  # lazy: scipy

    results = read_results(settings.results, data=settings.data, qrels=settings.qrels)
    analysis = Analysis(results, settings.baseline or settings.fail_if_worse)
    tested = {name for _, one in analysis.compared for pair in one.pairs for name in pair}
    untested = [name for name in results.table.models if name not in tested]
    if settings.fail_if_worse and untested:
        raise MarError(
            f"{', '.join(untested)} cannot be compared with {settings.fail_if_worse}: no task has scores per "
            "query of both. Run `medteb run` for both on the same data, or leave the results out."
        )
    outcome = Comparisons(
        analysis, settings, [pair for task, one in analysis.compared for pair in _pairs(task, one)]
    )
    if settings.junit:
        _write_junit(settings.junit, outcome)
    return outcome


def _pairs(task: str, compared: Compared) -> list[dict[str, Any]]:
    pairs = []
    for names, one in compared.pairs.items():
        holm = compared.adjusted[names]
        values = (task, *names, *one[:4], holm, one.wins, one.ties, one.losses, one.detectable)
        pairs.append(dict(zip(_PAIRS, values, strict=True)))
    return pairs


def _is_worse(pair: dict[str, Any]) -> bool:
    from medteb_mteb.report.paired import LEVEL  # lazy: numpy

    return bool(pair["difference"] < 0 and pair["p after Holm"] < LEVEL)


def _write_junit(path: Path, outcome: Comparisons) -> None:
    """Write a test case per system and task: it fails if the system is significantly worse."""
    from medteb_mteb.report.page import probability  # lazy: rich

    suite = ET.Element(
        "testsuite",
        name=f"not worse than {outcome.settings.fail_if_worse}",
        tests=str(len(outcome.pairs)),
        failures=str(len(outcome.worse)),
    )
    for pair in outcome.pairs:
        case = ET.SubElement(suite, "testcase", classname=pair["task"], name=pair["first"])
        message = f"{_difference(pair)}, p {probability(pair['p after Holm'], relation=True)}"
        if _is_worse(pair):
            ET.SubElement(case, "failure", message=message)
        else:
            ET.SubElement(case, "system-out").text = message
    write_text(path, ET.tostring(suite, encoding="unicode", xml_declaration=True))


def _difference(pair: dict[str, Any]) -> str:
    return f"{pair['difference']:+.4f} [{pair['low']:+.4f}, {pair['high']:+.4f}]"


def as_text(outcome: Comparisons) -> str:
    """Return the comparison in the form that the options ask for."""
    from pandas import DataFrame  # lazy: pandas

    from medteb_mteb.report.page import markdown_table, text_table  # lazy: numpy

    settings = outcome.settings
    if settings.csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, _PAIRS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(outcome.pairs)
        return text.getvalue().rstrip()
    parts = []
    for title, note, rows in _tables(outcome):
        if settings.latex:
            table = DataFrame(rows[1:], columns=rows[0])
            parts.append(table.to_latex(index=False, escape=True, caption=title).rstrip())
        else:
            parts.append(f"## {title}" if settings.markdown else title.upper())
            parts.append(markdown_table(rows) if settings.markdown else text_table(rows))
        if note:
            parts.append(f"% {note}" if settings.latex else note)
    parts += [f"worse than {pair['second']}: {pair['first']} on {pair['task']}" for pair in outcome.worse]
    return "\n\n".join(parts)


def _tables(outcome: Comparisons) -> list[tuple[str, str, list[list[str]]]]:
    """Return title, note and cells of every table that has rows."""
    from medteb_mteb.report.page import probability, with_interval  # lazy: rich

    analysis = outcome.analysis
    pairs = [
        [
            pair["task"], pair["first"], pair["second"], _difference(pair), probability(pair["p"]),
            probability(pair["p after Holm"]),
            "-" if pair["wins"] is None else f"{pair['wins']}/{pair['ties']}/{pair['losses']}",
            f"{pair['detectable']:.4f}",
        ]
        for pair in outcome.pairs
    ]  # fmt: skip
    names = analysis.table.models
    slices = [
        [one.task, one.by, one.value, str(one.queries)]
        + [with_interval(*one.scores[name]) if name in one.scores else "-" for name in names]
        for one in analysis.slices
    ]
    bounds = [
        [
            task,
            system,
            "-" if one.judged is None else f"{one.judged:.1%}",
            f"{one.low:.4f}",
            f"{one.high:.4f}",
        ]
        for (system, task), one in analysis.bounds.items()
    ]
    tables = [
        ("Scores", "[low, high]: 95 % bootstrap interval over the queries. (n): tie group; the systems of a "
         "group cannot be told from its best one (p >= .05 after Holm over all pairs of its column).",
         _scores(analysis)),
        ("Pairs", "Difference: first - second. detectable: the smallest true difference that the test finds "
         "four times in five.", [["task", "first", "second", "difference", "p", "p (Holm)",
                                  "wins/ties/losses", "detectable"], *pairs]),
        ("Slices", "", [["task", "by", "value", "queries", *names], *slices]),
        ("Unjudged documents", "nDCG@10 if none of the unjudged documents is relevant, and if all are.",
         [["task", "system", "judged@10", "low", "high"], *bounds]),
    ]  # fmt: skip
    return [table for table in tables if len(table[2]) > 1]


def _scores(analysis: Analysis) -> list[list[str]]:
    from medteb_mteb.compare.analysis import AVERAGE  # lazy: numpy

    groups = {(task, name): number for task, one in analysis.compared for name, number in one.groups.items()}
    averages = {
        name: drawn for task, one in analysis.compared if task == AVERAGE for name, drawn in one.drawn.items()
    }
    rows = [["system", *analysis.table.tasks, *([AVERAGE] if averages else [])]]
    for name in analysis.table.models:
        row = [name]
        for task in analysis.table.tasks:
            entry = analysis.entry(name, task)
            shown = entry.shown if entry else "-"
            row.append(f"{shown} ({groups[task, name]})" if (task, name) in groups else shown)
        if averages:
            mean = averages.get(name)
            row.append(f"{mean.score:.4f} ({groups[AVERAGE, name]})" if mean else "-")
        rows.append(row)
    return rows


class SiteSettings(SourceSettings):
    """Options of `medteb site`."""

    out: Annotated[Path, Argument(last=True)] = Field(description="Folder to write the pages to.")
    about: Path | None = Field(
        None, description="YAML file of facts per system, such as latency_ms, parameters_online and family."
    )
    texts: bool = Field(
        False, description="Show texts also of data without an open licence, on pages that stay with you."
    )
    title: str | None = Field(None, min_length=1, description="Title of the pages.")


def site(settings: SiteSettings) -> Outcome:
    """Write results as a folder of pages that open in a browser, from a file or from any host.

    The pages show every score with its interval and tie group, comparisons of two systems, and, for rankings
    that were kept (`medteb run --trec`), the first ten documents of each query. They need no server and load
    nothing from elsewhere. Texts are shown only if the licence of the data is open. An earlier site in the
    same folder is replaced.
    """
    from medteb_mteb.compare.read import read_results  # lazy: scipy
    from medteb_mteb.site import read_about, write_site  # lazy: scipy, jinja2

    results = read_results(settings.results, data=settings.data, qrels=settings.qrels)
    about = read_about(settings.about, results.table.models)
    return write_site(results, settings.out, about=about, texts=settings.texts, title=settings.title)


def site_as_text(outcome: Outcome) -> str:
    """Return where the site is, and what it does not show."""
    size = f"{outcome.bytes / 1e6:.1f} MB"
    lines = [f"{counted(outcome.pages, 'page')}, {size}: open {outcome.out}/index.html"]
    if outcome.without_texts:
        names = ", ".join(outcome.without_texts)
        lines.append(f"without texts, since their licences do not allow it: {names} (--texts shows them)")
    return "\n".join(lines)
