"""Centres of an inverted file's lists: nearest ones, samples, and the file of a resumed run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from medteb_mteb.curation.diversify.centres import Centres, find_centres, sample_rows
from medteb_mteb.curation.diversify.vectors import NotFiniteError, unit
from medteb_mteb.curation.files.records import BuildError


def vectors(n, dim=16, seed=0):
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def never():
    raise AssertionError("the sample was read")


@pytest.mark.parametrize("number", [1, 12])
def test_the_nearest_centres_are_those_of_the_largest_products(number):
    centres, asked = unit(vectors(12)), unit(vectors(4200, seed=1))  # more than a block
    nearest = Centres(centres, torch.float32).nearest(asked, number)
    assert (nearest.shape, nearest.dtype) == ((4200, number), np.int64)
    products = np.take_along_axis(asked @ centres.T, nearest, axis=1)
    best = -np.sort(-(asked @ centres.T), axis=1)[:, :number]
    assert products == pytest.approx(best, abs=1e-6)


def test_no_vectors_have_no_nearest_centres():
    assert Centres(unit(vectors(4))).nearest(vectors(0), 2).shape == (0, 2)


@pytest.mark.parametrize(("texts", "number"), [(0, 5), (1, 5), (5, 5), (5, 9), (1000, 24), (10**9, 7)])
def test_a_sample_is_spread_from_the_first_text_to_the_last(texts, number):
    rows = sample_rows(texts, number)
    assert len(rows) == min(texts, number)
    assert np.array_equal(rows, np.unique(rows))
    if texts:
        assert (rows[0], rows[-1]) == (0, texts - 1)
        gaps = np.diff(rows)
        assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_centres_are_the_means_of_their_groups_and_not_single_members():
    groups = np.eye(6, 16, dtype=np.float32)
    sample = np.repeat(groups, 20, axis=0) + 0.2 * vectors(120)
    centres = find_centres(lambda: 3 * sample, 6)
    assert np.linalg.norm(centres, axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert sorted((centres @ groups.T).argmax(axis=1)) == list(range(6))
    assert (centres @ groups.T).max(axis=1).min() > 0.95
    assert (unit(sample) @ groups.T).max(axis=1).mean() < 0.85


def test_there_are_no_more_centres_than_vectors_and_equal_vectors_leave_none_undefined():
    same = np.ones((3, 4), dtype=np.float32)
    assert find_centres(lambda: same, 64) == pytest.approx(np.full((3, 4), 0.5))


def test_an_unusable_vector_of_the_sample_is_named_by_its_row():
    sample = vectors(9)
    sample[7, 2] = np.inf
    with pytest.raises(NotFiniteError) as caught:
        find_centres(lambda: sample, 2)
    assert caught.value.row == 7


def test_a_resumed_run_takes_the_centres_of_its_file_and_reads_no_vectors(tmp_path):
    file = tmp_path / "centres.npy"
    centres = find_centres(lambda: vectors(50), 4, file)
    assert np.array_equal(find_centres(never, 4, file), centres)
    assert [path.name for path in tmp_path.iterdir()] == ["centres.npy"]


def half_of(file):
    np.save(file, unit(vectors(4)))
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\x80\x04K\x01."),
        lambda file: file.write_bytes(b"PK\x03\x04" + bytes(60)),
        lambda file: np.save(file, np.array([{}], dtype=object), allow_pickle=True),
        half_of,
    ],
    ids=["empty", "pickle", "archive", "objects", "half"],
)
def test_a_damaged_file_of_centres_is_named_with_what_to_do(tmp_path, spoil):
    spoil(tmp_path / "centres.npy")
    with pytest.raises(BuildError, match=r"centres\.npy cannot be read as centres .*Delete it and run"):
        find_centres(never, 4, tmp_path / "centres.npy")


@pytest.mark.parametrize(
    "content",
    [
        unit(vectors(5)),
        unit(vectors(4)).astype(np.float64),
        np.ones(4, dtype=np.float32),
        np.full((4, 16), np.nan, dtype=np.float32),
    ],
    ids=["more lists", "float64", "no matrix", "NaN"],
)
def test_a_file_of_other_numbers_is_refused(tmp_path, content):
    np.save(tmp_path / "centres.npy", content)
    with pytest.raises(BuildError, match=r"expected at most 4 finite float32 vectors, got"):
        find_centres(never, 4, tmp_path / "centres.npy")
