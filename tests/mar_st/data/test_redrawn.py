"""Positives and negatives that are drawn again for every epoch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mar_st.data import Source, Triple, column_texts, to_dataset
from mar_st.recipes.schema import Data
from mar_st.stages.samplers import TrainRows, text_columns, train_batches

#: 1 to 4 positives and 1 to 6 negatives each; documents name their triple.
TRIPLES = [
    Triple(
        f"问{n}",
        tuple(f"答{n}-{part}" + "长" * part for part in range(n % 4 + 1)),
        tuple(f"错{n}-{part}" for part in range(n % 6 + 1)),
        f"任务{n % 3}",
    )
    for n in range(40)
]
SEED = 5


def dataset(triples=TRIPLES, **options):
    return to_dataset(triples, **{"negatives": 2, "seed": SEED, "positives": "one-per-epoch", **options})


def epoch_of(data, epoch):
    """All rows of an epoch."""
    rows = TrainRows({"qa": data})
    rows.set_epoch(epoch)
    return rows.__getitems__(range(len(data)))


def test_a_row_holds_documents_of_its_own_triple():
    data = dataset(negatives=3)
    assert len(data) == len(TRIPLES)
    assert text_columns(data) == data.column_names == [
        "query", "positive", "negative_1", "negative_2", "negative_3"
    ]  # fmt: skip
    expected = to_dataset(TRIPLES, negatives=3, seed=SEED, positives="one")
    for epoch in range(3):
        rows = epoch_of(data, epoch)
        assert [row["query"] for row in rows] == list(column_texts(expected, "query"))
        for row, triple in zip(rows, TRIPLES, strict=True):
            negatives = [row[f"negative_{n}"] for n in (1, 2, 3)]
            assert row["positive"] in triple.positives
            assert set(negatives) <= set(triple.negatives)
            assert len(set(negatives)) == min(3, len(triple.negatives))


def test_epochs_differ_and_the_draw_depends_on_seed_and_epoch_alone():
    data = dataset()
    drawn = [epoch_of(data, epoch) for epoch in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    assert [epoch_of(dataset(), epoch) for epoch in (2, 0)] == [drawn[2], drawn[0]]
    assert epoch_of(dataset(seed=SEED + 1), 0) != drawn[0]
    some = TrainRows({"qa": data})
    some.set_epoch(1)
    assert some.__getitems__([7, 3, 7]) == [drawn[1][row] for row in (7, 3, 7)]


@pytest.mark.parametrize("weight", [1.0, 0.5, 2.5])
def test_all_positives_and_negatives_take_turns(weight):
    data = dataset(weight=weight)
    assert len(data) == 40 * weight
    positives, negatives = Counter(), Counter()
    for epoch in range(12):
        for row in epoch_of(data, epoch):
            positives[row["positive"]] += 1
            negatives.update([row["negative_1"], row["negative_2"]])
    for triple in TRIPLES:
        for counts, documents in ((positives, triple.positives), (negatives, triple.negatives)):
            occurrences = [counts[document] for document in documents]
            assert max(occurrences) - min(occurrences) <= 1
            assert min(occurrences) > 0 or weight < 1
    drawn = {row["query"] for row in epoch_of(data, 0)}
    assert len(drawn) == 40 * min(weight, 1)
    assert drawn == {row["query"] for row in epoch_of(data, 7)}  # the half is the same in every epoch


def batches_by_epoch(data, **options):
    """The rows of all batches of four epochs."""
    batches, rows, epochs = train_batches({"qa": data}, 8, seed=1, **options), TrainRows({"qa": data}), []
    for epoch in range(4):
        batches.set_epoch(epoch)
        rows.set_epoch(epoch)
        epochs.append([rows.__getitems__(batch) for batch in batches])
        assert len(epochs[-1]) == len(batches)
    return epochs


def test_equal_texts_of_an_epoch_are_never_in_one_batch():
    shared = [Triple(f"问{n}", (f"甲{n // 2}", f"乙{n}")) for n in range(48)]
    repeats = []
    for batches in batches_by_epoch(dataset(shared, negatives=0)):
        positives = [{row["positive"] for row in batch} for batch in batches]
        assert all(len(of_batch) == 8 for of_batch in positives)
        repeats.append(48 - len(set().union(*positives)))
    assert max(repeats) > 0


def test_rows_are_sorted_by_the_lengths_of_their_epoch():
    long = [Triple(f"问{n}", tuple(f"{part}{n}" + "长" * (n * 7 % p) for part, p in (("甲", 9), ("乙", 11))))
            for n in range(48)]  # fmt: skip
    orders = []
    for batches in batches_by_epoch(dataset(long, negatives=0), groups=2):
        lengths = [[len(row["positive"]) for row in batch] for batch in batches]
        assert all(of_batch in (sorted(of_batch), sorted(of_batch)[::-1]) for of_batch in lengths)
        orders.append([row["query"] for batch in batches for row in batch])
    assert orders[0] != orders[1]


def test_rows_without_negatives_are_filled_from_the_batch():
    triples = [Triple(t.query, t.positives, t.negatives if n % 2 else ()) for n, t in enumerate(TRIPLES)]
    data = dataset(triples, missing_negatives="batch")
    rows = TrainRows({"qa": data})
    for epoch in range(2):
        rows.set_epoch(epoch)
        filled = rows.__getitems__(range(8))
        given = {
            text for row in filled for name, text in row.items() if name not in ("query", "dataset_name")
        }
        assert None not in given
        assert filled[0]["negative_1"] not in triples[0].positives
    batches = train_batches({"qa": data}, 8)
    assert sorted(row for batch in batches for row in batch) == list(range(40))


def test_drawing_copies_no_text():
    data = dataset()
    stored = data.draws.documents.chunks[0].buffers()[2].address
    for epoch in range(2):
        epoch_of(data, epoch)
        assert data.draws.documents.chunks[0].buffers()[2].address == stored
    assert data.data.nbytes < sum(len(t.query) for t in TRIPLES) * 4 * 8


def test_other_modes_are_drawn_once():
    for positives in ("one", "all"):
        data = dataset(positives=positives)
        assert epoch_of(data, 0) == epoch_of(data, 5)


def test_many_and_few_rows_are_drawn():
    many = [Triple(f"问{n}", (f"甲{n}", f"乙{n}")) for n in range(9000)]  # more than a block
    data = dataset(many, negatives=0)
    assert len(data) == 9000
    firsts, seconds = ([row["positive"] for row in epoch_of(data, epoch)] for epoch in (0, 1))
    pairs = enumerate(zip(firsts, seconds, strict=True))
    assert all({first, second} == {f"甲{n}", f"乙{n}"} for n, (first, second) in pairs)
    assert 0.4 < np.mean([text[0] == "甲" for text in firsts]) < 0.6


def test_one_per_epoch_in_a_recipe_draws_again_each_epoch():
    from mar_st.stages.columns import read_columns

    entry = Data(name="qa", path="-", prompt="", negatives=2, positives="one-per-epoch")
    assert epoch_of(read_columns(Source(entry, TRIPLES), SEED), 3) == epoch_of(dataset(), 3)
