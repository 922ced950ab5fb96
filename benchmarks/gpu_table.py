"""The Markdown table of `benchmarks/gpu.py`, made of the records written so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Aims: share of the peak of a LoRA step and of encoding of the 4B, reserved memory against the plan.
AIMS = {"train-4b-512": 0.45, "encode-4b-512": 0.50}
PLAN_TOLERANCE = 0.25


def markdown(records: dict[str, dict[str, Any]], order: Sequence[str]) -> str:
    """All results as Markdown.

    Args:
        records: Record of each step, by name.
        order: Names of all steps; those without a record were not reached.
    """
    results = {name: record.get("result") or {} for name, record in records.items()}
    parts = [
        head(results.get("environment", {})),
        tests(results.get("tests", {})),
        training(results),
        encoding(results),
        small(results.get("mar-small-gpu", {})),
        states(records, order),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(facts: dict[str, Any]) -> str:
    """The device and the versions."""
    if not facts:
        return "# Measured on a device that was not looked at"
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number)
    missing = ", ".join(name for name, number in facts["versions"].items() if not number)
    return (
        f"# Measured on {facts['devices'] or 1} x {facts['device']}\n\n"
        f"Peak {facts['peak_tflops']:.3g} TFLOP/s (bf16, dense); a matrix product reaches "
        f"{facts['product_tflops']:.3g}. {versions}. Not installed: {missing or 'nothing'}."
    )


def tests(outcome: dict[str, Any]) -> str:
    """Tests that failed or were skipped."""
    if not outcome:
        return ""
    lines = [
        f"Tests marked `gpu`: {outcome['passed']} passed, {len(outcome['failed'])} failed, "
        f"{len(outcome['skipped'])} skipped."
    ]
    for kind in ("failed", "skipped"):
        lines += [f"- {kind}: `{name}`: {' '.join(why.split())}" for name, why in outcome[kind].items()]
    return "\n".join(lines)


def training(results: dict[str, dict[str, Any]]) -> str:
    """A line per shape, length and setting of `compile`, with the other trainer in the line without it."""
    rows = []
    for name, result in results.items():
        systems = result.get("systems", {})
        if not name.startswith("train-"):
            continue
        for system, label in (("mar", ""), ("mar:compile", ", compiled")):
            row = systems.get(system, {})
            if "mfu" in row:
                rows.append(training_row(name, label, row, {} if label else systems.get("st", {})))
    columns = ["step", "batch", "texts/s", "texts/s ST", "ratio", "tokens/s", "MFU", "MFU ST"]
    columns += ["with recomputation", "GB reserved", "GB reserved ST", "GB planned", "reserved / planned"]
    return table("Training steps, `mar train` and sentence-transformers' trainer (ST)", columns, rows)


def training_row(name: str, label: str, mar: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    """A line: one measurement of `mar train`, and the other trainer's if there is one."""
    ratio = mar["rows_per_second"] / plain["rows_per_second"] if "mfu" in plain else None
    reserved = mar.get("reserved_to_planned")
    off = reserved and abs(reserved - 1) > PLAN_TOLERANCE
    return [
        name.removeprefix("train-") + label,
        f"{mar['batch']}" + (f" by {mar['mini_batch']}" if mar["mini_batch"] else ""),
        number(mar["texts_per_second"]),
        number(plain.get("texts_per_second")),
        number(ratio, ".2f"),
        number(mar["tokens_per_second"]),
        number(mar["mfu"], ".1%") + aim(name, mar["mfu"]),
        number(plain.get("mfu"), ".1%"),
        number(mar["executed_mfu"], ".1%"),
        number(mar.get("reserved_gb"), ".1f"),
        number(plain.get("reserved_gb"), ".1f"),
        number(mar["planned_gb"], ".1f"),
        number(reserved, ".2f") + (f" (aim within {PLAN_TOLERANCE:.0%})" if off else ""),
    ]


def encoding(results: dict[str, dict[str, Any]]) -> str:
    """A line per length and system."""
    rows = []
    for name, result in results.items():
        if not name.startswith("encode-"):
            continue
        for system, row in result.get("systems", {}).items():
            if "mfu" not in row:
                continue
            own = system == "mar"
            rows.append(
                [
                    name.removeprefix("encode-"),
                    "`mar encode`" if own else f"`encode`, batches of {system.partition(':')[2]}",
                    number(row["texts_per_second"]),
                    number(row["tokens_per_second"]),
                    number(row["mfu"], ".1%") + (aim(name, row["mfu"]) if own else ""),
                    number(row["reserved_gb"], ".1f"),
                    number(row.get("cosine_gap"), ".1e"),
                ]
            )
    columns = [
        "step",
        "system",
        "texts/s",
        "tokens/s",
        "MFU",
        "GB reserved",
        "1 - cosine to `encode`",
    ]
    return table("Encoding, bf16, loading not counted", columns, rows)


def small(result: dict[str, Any]) -> str:
    """A line per stage of the small model."""
    rows = [
        [
            name,
            number(stage["steps"]),
            number(stage["seconds"], ".0f"),
            number(stage["texts_per_second"]),
            number(stage["tokens_per_second"]),
            number(stage["mfu"], ".1%"),
            number(stage["memory_gb"], ".1f"),
            ", ".join(f"{key} {value:.4f}" for key, value in (stage["scores"] or {}).items()) or "-",
        ]
        for name, stage in result.get("stages", {}).items()
    ]
    title = "`mar-small-gpu`"
    if result.get("made_up"):
        title += ", on made-up data: its speed counts, its scores mean nothing"
    return table(title, ["stage", "steps", "s", "texts/s", "tokens/s", "MFU", "GB allocated", "scores"], rows)


def states(records: dict[str, dict[str, Any]], order: Sequence[str]) -> str:
    """Return a table of all steps and their results."""
    rows = []
    for name in [*order, *(name for name in records if name not in order)]:
        record = records.get(name, {})
        status = record.get("status", "not reached")
        rows.append([name, status, number(record.get("seconds"), ".0f"), record.get("reason", "") or ""])
    return table("Steps", ["step", "state", "s", "why"], rows)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A titled table; nothing without rows."""
    if not rows:
        return ""
    lines = [f"**{title}**", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def aim(name: str, mfu: float) -> str:
    """A note where an aim is missed."""
    wanted = AIMS.get(name)
    return f" (aim {wanted:.0%})" if wanted and mfu < wanted else ""


def number(value: float | None, form: str = ",.0f") -> str:
    """A figure, or a dash."""
    return "-" if value is None else format(value, form)
