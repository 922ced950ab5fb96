"""The steps of a build as assets of Dagster, for more than one machine: months are partitions.

A file `definitions.py`, which `dagster dev -f definitions.py` opens::

    from medteb_mteb.curation.assets import definitions

    defs = definitions("loop.yaml", start="2026-10")

An asset runs `medteb build loop.yaml --set month=MONTH --until STEP`, so what is finished is kept, and both
ways can be mixed. A step `gate` that refuses a model is a failed check that blocks the steps after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import load_package
from mar_st.options import read_yaml
from medteb_mteb.curation.build import BuildSettings, build
from medteb_mteb.curation.build_file import STEPS
from medteb_mteb.curation.loop.gate import GATE

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Name of the check of a gate.
PASSES = "passes"


def definitions(file: str | Path, *, start: str, name: str = "month") -> Any:
    """Return the Dagster definitions of a build: an asset per step, a job, and its monthly schedule.

    An asset depends on the steps that its options name and on the step before it. Run months in their order,
    since each one continues the one before.

    Args:
        file: The file of the build, with `{month}` in its paths.
        start: The first month, `2026-10`.
        name: Name of the value in the file that is the month.

    Raises:
        MarError: Dagster is missing, or the file is not a build with the name in its paths.
    """
    dg = load_package("dagster", extra="dagster")
    path = Path(file).resolve()
    content = read_yaml(path)
    entries = content.get("steps") if isinstance(content, dict) else None
    if not isinstance(entries, list) or f"{{{name}}}" not in str(content):
        raise MarError(f"{path} must be the file of a build with {{{name}}} in its paths.")
    months = dg.MonthlyPartitionsDefinition(start_date=start, fmt="%Y-%m")
    assets: list[Any] = []
    earlier: list[str] = []
    for entry in entries:
        kind = STEPS.get(str(entry.get("step")) if isinstance(entry, dict) else "")
        if kind is None:
            raise MarError(f"{path}: {entry!r} is not a step. 'medteb build --dry-run' checks the file.")
        step = str(entry.get("name", kind.name))
        named = {value.partition("/")[0] for value in _strings(entry)}
        deps = [one for one in earlier if one in named or one == earlier[-1]]
        checks = [dg.AssetCheckSpec(PASSES, asset=_key(step), blocking=True)] if kind is GATE else []
        assets.append(
            dg.asset(
                _runs(dg, path, name, step, gate=kind is GATE),
                name=_key(step),
                deps=list(map(_key, deps)),
                partitions_def=months,
                check_specs=checks,
                kinds={kind.writes},
                group_name=_key(path.stem),
            )
        )
        earlier.append(step)
    job = dg.define_asset_job(f"{_key(path.stem)}_job", selection="*", partitions_def=months)
    schedule = dg.build_schedule_from_partitioned_job(job)
    return dg.Definitions(assets=assets, jobs=[job], schedules=[schedule])


def _key(step: str) -> str:
    """Return a name that Dagster takes, which has no hyphens."""
    return step.replace("-", "_")


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings of an entry."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _runs(dg: Any, path: Path, name: str, step: str, *, gate: bool) -> Any:
    """Return the function of an asset, which runs the build up to a step."""

    def run(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 -- Dagster reads annotations
        if context.instance.telemetry_enabled:
            raise dg.Failure(
                "Dagster sends telemetry. Turn it off in dagster.yaml: telemetry: {enabled: false}"
            )
        month = context.partition_key
        report = build(BuildSettings(file=path, values={name: month}, until=step))
        last = report["steps"][-1]
        refused = gate and last["name"] == step and bool(last["stopped"])
        if report.get("failed") and not refused:
            raise dg.Failure(report["stopped"] or f"training data hold queries of the tests: {report['out']}")
        metadata = {
            "rows": last["rows"],
            "folder": f"{report['out']}/{step}",
            "finished before": last["kept"],
        }
        checks = [dg.AssetCheckResult(passed=not refused, check_name=PASSES, description=last["stopped"])]
        return dg.MaterializeResult(metadata=metadata, check_results=checks if gate else [])

    return run
