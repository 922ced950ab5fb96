"""The approximate index: it may overlook neighbours, and invents none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from medteb_mteb.curation.diversify.exact import Exact
from medteb_mteb.curation.diversify.inverted import Inverted
from medteb_mteb.curation.diversify.product import Product
from medteb_mteb.curation.diversify.rule import SelectionRule
from medteb_mteb.curation.diversify.vectors import KeptVectors, unit
from medteb_mteb.curation.files.records import BuildError

DIM, LISTS = 16, 12
RULE = SelectionRule(0.8, k=400)


def families(n, seed=0):
    rng = np.random.default_rng(seed)
    vectors = np.random.default_rng(9).standard_normal((30, DIM))[rng.integers(0, 30, n)]
    return unit(vectors + 0.35 * rng.standard_normal((n, DIM)))


CENTRES = families(LISTS, seed=4)


def filled(stored, probes, rule=RULE, centres=CENTRES):
    kept = KeptVectors(stored.shape[1])
    index = Inverted(rule, kept, centres, probes, torch.float32)
    for start in range(0, len(stored), 70):
        rows = np.arange(start, min(start + 70, len(stored)))
        kept.add(stored, rows)
        index.add(stored[rows])
    return index


def exactly(stored, queries):
    kept = KeptVectors(DIM)
    kept.add(stored, np.arange(len(stored)))
    index = Exact(RULE, kept, Product(float(RULE.limit), DIM))
    index.add(stored)
    return listed(index.above(queries))


def listed(pairs):
    return {(i, j): s for i, j, s in zip(*(column.tolist() for column in pairs), strict=True)}


def test_a_search_of_all_lists_finds_what_an_exact_one_finds():
    stored, queries = families(400), families(100, seed=1)
    found = filled(stored, probes=LISTS).above(queries)
    assert listed(found) == exactly(stored, queries)
    assert len(found.left) > 100


def test_a_search_of_few_lists_overlooks_neighbours_and_invents_none():
    stored, queries = families(400), families(100, seed=1)
    found, every = listed(filled(stored, probes=1).above(queries)), exactly(stored, queries)
    assert found.items() < every.items()
    assert len(found) > len(every) / 4


def test_more_probes_than_lists_search_all_lists():
    stored, queries = families(200), families(50, seed=1)
    assert listed(filled(stored, probes=99).above(queries)) == exactly(stored, queries)


def test_at_most_k_neighbours_are_found_which_suffice_to_drop_a_vector():
    copies = np.repeat(families(1), 50, axis=0)
    rule = SelectionRule(0.8, k=5, tolerated=4)
    pairs = filled(copies, probes=2, rule=rule).above(copies[:3])
    assert np.bincount(pairs.left).tolist() == [5, 5, 5]
    assert pairs.similarity.min() > rule.limit


def test_a_similarity_that_half_precision_puts_on_the_wrong_side_is_settled_exactly():
    """Between the threshold and what fits into 16 bits there are many numbers."""
    rng = np.random.default_rng(0)
    queries = unit(rng.standard_normal((300, DIM)))
    away = rng.standard_normal((300, DIM))
    away = unit(away - (away * queries).sum(axis=1, keepdims=True) * queries)
    wanted = 0.8 + rng.uniform(-1e-4, 1e-4, (300, 1))
    stored = unit(wanted * queries + np.sqrt(1 - wanted**2) * away)
    found, every = listed(filled(stored, probes=LISTS).above(queries)), exactly(stored, queries)
    assert found == every
    assert 100 < sum(i == j for i, j in every) < 200


def test_an_empty_index_has_no_neighbours():
    pairs = filled(families(0), probes=3).above(families(4))
    assert [len(column) for column in pairs] == [0, 0, 0]


def test_centres_of_another_width_than_the_vectors_are_refused():
    with pytest.raises(BuildError, match=r"have 16 dimensions and the vectors 8\. Delete the file"):
        filled(families(5)[:, :8], probes=1)
