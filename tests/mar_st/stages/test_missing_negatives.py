"""Rows without negatives take documents of the other rows of their batch."""

from __future__ import annotations

import pytest

from mar_st.data import Triple, to_dataset
from mar_st.errors import MarError
from mar_st.stages.contrastive import train_contrastive, train_distill
from mar_st.stages.samplers import TrainRows, train_batches
from tests.mar_st.stages.helpers import TRIPLES, changed, encoder, settings, source, stage, weights

#: Every other triple has no negatives.
MIXED = [Triple(t.query, t.positives, t.negatives if n % 2 else ()) for n, t in enumerate(TRIPLES)]


def rows_of(triples, negatives):
    return to_dataset(triples, negatives=negatives, seed=0, missing_negatives="batch")


@pytest.mark.parametrize("negatives", [1, 3])
def test_rows_are_filled_from_their_batch(negatives):
    data = {"qa": rows_of(MIXED, negatives)}
    rows = TrainRows(data)
    without = {triple.query for triple in MIXED if not triple.negatives}
    names = [f"negative_{number + 1}" for number in range(negatives)]
    filled = 0
    for batch in train_batches(data, 8, groups=2, seed=1):
        items, again = rows.__getitems__(batch), rows.__getitems__(batch)
        assert items == again
        for place, row in enumerate(items):
            others = [r for n, r in enumerate(items) if n != place]
            given = {text for r in others for text in (r["positive"], *(r[name] for name in names))}
            own = next(triple for triple in MIXED if triple.query == row["query"])
            drawn = [row[name] for name in names]
            if row["query"] in without:
                filled += 1
                assert set(drawn) <= given
                assert row["positive"] not in drawn
            else:
                assert set(drawn) <= set(own.negatives)
    assert filled == 12


def test_rows_with_negatives_are_drawn_as_without_the_option():
    assert rows_of(TRIPLES, 2).to_dict() == to_dataset(TRIPLES, negatives=2, seed=0).to_dict()


def test_rows_without_negatives_may_share_a_batch():
    batches = list(train_batches({"qa": rows_of([Triple(t.query, t.positives) for t in TRIPLES], 2)}, 8))
    assert len(batches) == 3
    assert sorted(row for batch in batches for row in batch) == list(range(24))


def test_training_without_negatives_needs_the_option(tmp_path):
    model, options = encoder(), {"triples": MIXED, "negatives": 1}
    before = weights(model)
    with pytest.raises(MarError, match="missing_negatives: batch"):
        train_contrastive(model, [source(**options)], stage("contrastive"), settings(tmp_path), {})
    filled = source(**options, missing_negatives="batch")
    train_contrastive(model, [filled], stage("contrastive"), settings(tmp_path), {})
    assert changed(model, before)


def test_rows_that_cannot_be_filled_are_refused(tmp_path):
    with pytest.raises(MarError, match="at least two rows per batch"):
        TrainRows({"qa": rows_of(MIXED, 1)}).__getitems__([0])
    filled = source(triples=MIXED, negatives=1, missing_negatives="batch")
    with pytest.raises(MarError, match="no stored vectors or scores"):
        train_distill(encoder(), encoder(seed=1), [filled], stage("distill"), settings(tmp_path), {})
