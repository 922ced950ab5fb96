"""The step run over a source; an approximate search is measured against an exact one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.diversify.disagreement import measure_disagreement
from medteb_mteb.curation.diversify.step import Diversify, centres_sample
from medteb_mteb.curation.files.folder import write_json
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.step import run_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from medteb_mteb.curation.diversify.core import Search
    from medteb_mteb.curation.diversify.disagreement import Disagreement
    from medteb_mteb.curation.diversify.rule import SelectionRule
    from medteb_mteb.curation.diversify.sources import TextVectors
    from medteb_mteb.curation.files.sources import TextSource
    from medteb_mteb.curation.files.step import TextsReport

__all__ = ["CENTRES_FILE", "DISAGREEMENT_FILE", "run_diversify"]

#: Measurements of an approximate search, in the folder of the step.
DISAGREEMENT_FILE = "disagreement.json"
CENTRES_FILE = ".centres.npy"


def run_diversify(
    source: str | Path,
    out: Path,
    vectors: TextVectors,
    rule: SelectionRule,
    search: Search,
    *,
    columns: dict[str, str] | None = None,
    sources: Sequence[TextSource] = (),
    sample: int = 1000,
    show_progress: bool = True,
) -> tuple[TextsReport, Disagreement | None]:
    """Run the step and, if the search is approximate, measure how far it is from an exact one.

    Args:
        source: See `medteb_mteb.curation.files.read.read_texts`.
        out: Folder to write.
        vectors: Source of the vectors.
        rule: The rule that drops texts.
        search: Search for neighbours.
        columns: See `read_texts`.
        sources: See `medteb_mteb.curation.files.step.run_step`.
        sample: Number of decisions to check.
        show_progress: Show a progress bar.

    Raises:
        BuildError: See `medteb_mteb.curation.files.step.run_step`.
    """
    if search.index == "exact":
        step = Diversify(vectors, rule, search)
        report = run_step(step, source, out, columns=columns, sources=sources, show_progress=show_progress)
        step.warn()
        return report, None
    search, texts = centres_sample(source, search, columns)
    step = Diversify(vectors, rule, search, sample=texts, centres_file=out / CENTRES_FILE)
    report = run_step(step, source, out, columns=columns, sources=sources, show_progress=show_progress)
    step.warn()
    (out / CENTRES_FILE).unlink(missing_ok=True)
    return report, _measured(source, out, vectors, rule, columns, sample)


def _measured(
    source: str | Path,
    out: Path,
    vectors: TextVectors,
    rule: SelectionRule,
    columns: dict[str, str] | None,
    sample: int,
) -> Disagreement:
    kept = {text.id for text in read_texts(out)}
    texts = list(read_texts(source, columns))
    mask = np.array([text.id in kept for text in texts])
    measured = measure_disagreement(vectors.vectors(texts), mask, rule, sample=sample)
    write_json(out / DISAGREEMENT_FILE, measured.to_json())
    return measured
