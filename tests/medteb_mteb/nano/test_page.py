"""The page on Nano sets shows the figures of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from medteb_mteb.nano.table import BM25, DENSE, HYBRID, published_sets

PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "nano.md"
SPLITS = [split for nano in published_sets().values() for split in nano.splits.values()]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: f"{split.set}-{split.name}")
def test_the_page_shows_the_figures_of_the_table(split):
    card, lists = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith(f"| {split.name} |")
    ]
    assert card[1] == f"`{split.set}{split.stem}...`"
    assert card[3] == (f"`{split.source_revision[:8]}`" if split.source_revision else "unpinned")
    assert card[5] == f"{split.queries} / {split.documents:,} / {split.positives:,}"
    assert card[6] == f"{split.query_mean_chars:.10g}, {split.document_mean_chars:.10g}"
    shown = [split.lists[name] for name in (BM25, DENSE, HYBRID)]
    assert lists[1:4] == [
        f"{one.ndcg_at_10:.4f}, {one.hit_at_10:.4f}, {one.recall_micro_at_100:.4f}" for one in shown
    ]
    assert lists[4] == str(split.safeguards)
