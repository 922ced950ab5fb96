"""Draw the models of a loop by slice: `python figure.py months loop.svg`.

For each month, on its slice: the model that never changed, the one that was served, and the candidate, with
95 % bootstrap intervals over the queries. Reads months/*/gate/gate.json. Standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 60, 50, 310
COLOURS = {"frozen": "#7a8599", "served": "#2a62b8", "candidate": "#2f8f5b"}
STYLE = "text{font:13px sans-serif;fill:#1c2b4a;text-anchor:middle}.s{text-anchor:start}.e{text-anchor:end}"


def scores_of(gate: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return score and interval of each model on the newest slice of a report of the gate."""
    rows = gate["rows"]
    by_role = {"candidate": rows[0], "served": rows[1], "frozen": rows[-1]}
    return {role: row["scores"][gate["tasks"][0]] for role, row in by_role.items()}


def draw(months: dict[str, dict[str, dict[str, float]]], verdicts: dict[str, bool]) -> str:
    """Return the figure as SVG.

    Args:
        months: Scores by month and role.
        verdicts: True for the months whose candidate passed the gate.
    """
    every = [one for scores in months.values() for one in scores.values()]
    low, high = min(one["low"] for one in every), max(one["high"] for one in every)

    def place(value: float) -> float:
        return BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"><style>{STYLE}</style>']
    for step in range(5):
        value = low + step / 4 * (high - low)
        y = place(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 10}" stroke="#dde3ee"/>')
        parts.append(f'<text class="e" x="{LEFT - 8}" y="{y + 4:.1f}">{value:.2f}</text>')
    for number, role in enumerate(COLOURS):
        x = LEFT + 10 + 140 * number
        parts.append(f'<circle cx="{x}" cy="20" r="5" fill="{COLOURS[role]}"/>')
        parts.append(f'<text class="s" x="{x + 10}" y="24">{role}</text>')
    parts.append('<text class="e" x="630" y="24">nDCG@10</text>')
    width = (WIDTH - LEFT) / len(months)
    for number, (month, scores) in enumerate(months.items()):
        middle = LEFT + width * (number + 0.5)
        for shift, (role, colour) in enumerate(COLOURS.items(), -1):
            x, one = middle + 26 * shift, scores[role]
            top, end, y = place(one["high"]), place(one["low"]), place(one["score"])
            parts.append(f'<path d="M{x:.1f} {top:.1f}V{end:.1f}" stroke="{colour}" stroke-width="2"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{middle:.1f}" y="{BOTTOM + 22}">{month}</text>')
        verdict = "released" if verdicts[month] else "refused"
        parts.append(f'<text x="{middle:.1f}" y="{BOTTOM + 40}">{verdict}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(arguments: list[str]) -> None:
    """Read the reports of a loop, and write the figure."""
    reports = {
        path.parts[-3]: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(Path(arguments[0]).glob("*/gate/gate.json"))
    }
    months = {month: scores_of(gate) for month, gate in reports.items()}
    figure = draw(months, {month: gate["passed"] for month, gate in reports.items()})
    Path(arguments[1]).write_text(figure, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
