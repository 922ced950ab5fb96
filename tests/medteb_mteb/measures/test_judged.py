"""Judgements besides the positives: what counts as known, and how many there are."""

from __future__ import annotations

import pytest

from medteb_mteb.folders import read_folder
from medteb_mteb.measures.judged import Judged


@pytest.mark.parametrize(
    ("judged", "known", "pairs"),
    [
        (Judged(), False, 0),
        (Judged({"q1": frozenset()}), False, 0),
        (Judged(disputed={"q1": frozenset({"d1"})}, sources=("disputed.tsv",)), False, 0),
        (Judged({"q1": frozenset({"d1", "d2"}), "q2": frozenset(), "q3": frozenset({"d1"})}), True, 3),
    ],
)
def test_negatives_alone_make_judgements_known(judged, known, pairs):
    assert (judged.known, judged.pairs) == (known, pairs)


def test_judgements_of_a_folder_are_counted(make_folder):
    folder = make_folder("Retrieval")
    assert not read_folder(folder).retrieval.judged.known
    rows = ["query-id\tcorpus-id", "q1\td2", "q1\td3", "q2\td6", "q1\tgone", "q2\td2"]
    (folder / "judged_negatives.tsv").write_text("\n".join(rows) + "\n")
    judged = read_folder(folder).retrieval.judged
    assert (judged.known, judged.pairs) == (True, 3)
    assert judged.sources == ("judged_negatives.tsv",)
    assert (judged.dangling, judged.contradictions) == (1, 1)  # `gone`, and a positive of q2
