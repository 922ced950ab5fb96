"""Step `gate`: a candidate passes if it is better on the newest slice, and nowhere worse.

The candidate is compared with the served model by the paired randomisation test and bootstrap of the result
tables. Better: p below a level, and a positive difference. Not worse: the lower end of the 95 % interval of
the difference is above minus a margin. All guards must hold, which is an intersection-union test: it needs no
correction for their number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import write_json, write_text
from medteb_mteb.curation.loop.start import MonthSettings, slices_before
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Runtime, Step
from medteb_mteb.report.page import Finding, Page, Table, probability, to_markdown, with_interval

if TYPE_CHECKING:
    from medteb_mteb.report.paired import Comparison
    from medteb_mteb.report.table import ResultTable

REPORT = "gate.md"


class GateSettings(MonthSettings):
    """Options of the step."""

    candidate: Annotated[str, Model()] = Field(description="Model that was trained.")
    served: Annotated[str, Model()] = Field(description="Model that is served.")
    first: Annotated[str | None, Model()] = Field(
        None, description="A model that stays the same, shown beside the two."
    )
    slice: Annotated[Path, Input("file")] = Field(description="Step that has appended the month's slice.")
    live: Path = Field(description="Folder of the slices of all months.")
    guards: Annotated[tuple[Path, ...], Input("editions", "file")] = Field(
        (), description="Data folders on which the candidate must not be worse, as on earlier slices."
    )
    slices: int = Field(3, ge=0, description="Number of earlier slices to guard, the latest ones.")
    results: Annotated[Path, Runtime()] = Field(description="Folder of the results of all months.")
    better: float | None = Field(
        0.05, gt=0, lt=1, description="Level of the test on the newest slice; null: not worse is enough."
    )
    margin: float = Field(0.02, ge=0, lt=1, description="Loss of the main score that counts as not worse.")
    batch_size: Annotated[int, Runtime()] = Field(32, ge=1, description="Texts per forward pass.")


def gate(settings: GateSettings) -> Counts:
    """Compare a candidate with the served model on the newest slice, earlier slices and further data.

    Writes `gate.md` and `gate.json`. If the candidate does not pass, the build stops.
    """
    from medteb_mteb.models.local import resolve_model  # lazy: mteb
    from medteb_mteb.run.run import RunSettings, run  # lazy: mteb

    earlier = slices_before(settings.live, settings.month)[::-1][: settings.slices]
    folders = [settings.live / settings.month, *earlier, *settings.guards]
    given = [settings.candidate, settings.served, *([settings.first] if settings.first else [])]
    models = {(meta.name, meta.revision): name for name in given for meta in [resolve_model(name)]}
    outcome = run(
        RunSettings(
            models=tuple(models.values()),
            data=tuple(folders),
            output_folder=settings.results,
            batch_size=settings.batch_size,
        )
    )
    table = outcome.table
    if outcome.failed:
        raise MarError(f"The models were not scored: {'; '.join(outcome.errors)}")
    if len(table.tasks) < len(folders):
        raise MarError(f"Two of these data folders have one name: {', '.join(map(str, folders))}.")
    page = _page(settings, table)
    write_text(settings.out / REPORT, to_markdown(page))
    write_json(
        settings.out / "gate.json", {**page.to_json(), "passed": not page.failed, **table.scores_to_json()}
    )
    stopped = f"the candidate does not pass, see {settings.out / REPORT}" if page.failed else ""
    verdicts = {one.title: one.verdict for one in page.findings}
    return Counts(len(table.tasks), details={"verdicts": verdicts}, stopped=stopped)


def _page(settings: GateSettings, table: ResultTable) -> Page:
    candidate, served = table.models[:2]
    findings = []
    for number, task in enumerate(table.tasks):
        pairs = [
            one.pairs[candidate, served] for one in table.compared(task) if (candidate, served) in one.pairs
        ]
        findings.append(_finding(task, pairs[0] if pairs else None, settings, newest=not number))
    header, *rows = map(tuple, table.cells())
    shown = Table(header, tuple(rows))
    overview = Finding("Scores", "ok", "By model and data, with 95 % intervals.", table=shown)
    return Page(
        f"Gate of {settings.month}",
        f"{candidate} is compared with {served}, which is served. "
        + ("It does not pass." if any(one.verdict == "fail" for one in findings) else "It passes."),
        (*findings, overview),
    )


def _finding(task: str, compared: Comparison | None, settings: GateSettings, *, newest: bool) -> Finding:
    """Return the verdict on one task."""
    title = f"{task}, the newest slice" if newest else task
    if compared is None:
        return Finding(title, "fail", "The scores per query cannot be compared: too few queries.")
    shown = with_interval(compared.difference, compared.low, compared.high, "+.4f")
    if newest and settings.better is not None:
        passed = compared.difference > 0 and compared.p_value < settings.better
        rule = f"must be above 0 with p < {settings.better:g}"
    else:
        passed = compared.low > -settings.margin
        rule = f"must be above {-settings.margin:g} with its whole interval"
    p = probability(compared.p_value, relation=True)
    found = f"A true difference of {compared.detectable:.3f} is found four times in five."
    reason = f"The difference is {shown}, p {p}; it {rule}. {found}"
    numbers = {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in compared._asdict().items()
    }
    return Finding(title, "ok" if passed else "fail", reason, numbers)


GATE = Step("gate", GateSettings, gate, "file", lambda *_: Estimate(0), result_file="gate.json", alone=False)
