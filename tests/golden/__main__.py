"""Write the golden figures: `python -m tests.golden [NAME ...]`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.golden import compute

FOLDER = Path(__file__).parent
FIGURES = {
    "run_scores": compute.run_scores,
    "sample_top10": compute.sample_top10,
    "clinic_labels": compute.clinic_labels,
    "losses": compute.losses,
    "anonymised": lambda _: compute.anonymised(),
}


def main(names: list[str]) -> None:
    """Write the figures of these names; default: all."""
    for name, figure in FIGURES.items():
        if not names or name in names:
            with tempfile.TemporaryDirectory() as folder:
                text = json.dumps(
                    figure(Path(folder)), ensure_ascii=False, sort_keys=True, separators=(",", ":")
                )
            (FOLDER / f"{name}.json").write_text(
                text.replace("},", "},\n").replace("],", "],\n") + "\n", "utf-8"
            )
    if not names or "mar_zh_vectors" in names:
        np.savez_compressed(FOLDER / "mar_zh_vectors.npz", **compute.mar_zh_vectors())


if __name__ == "__main__":
    main(sys.argv[1:])
