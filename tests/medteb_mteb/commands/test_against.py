"""Queries of tests that commands keep out of training data."""

from __future__ import annotations

import pytest

from medteb_mteb.commands.against import held_out, held_out_of_training
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import HeldOut


@pytest.fixture
def places(tmp_path, retrieval_folder, make_folder):
    retrieval_folder(tmp_path / "clinic")
    return [str(tmp_path / "clinic"), str(make_folder("STS"))]


@pytest.mark.parametrize("read", [held_out, held_out_of_training])
def test_queries_and_both_sentences_of_pairs_are_held_out(read, places, capsys):
    held = read(places, 0.7)
    assert held.threshold == 0.7
    assert len(held.texts) == 3 + 2 * 6
    assert held.names[0].startswith("clinic:q0")
    assert held.leaks(["感冒发烧了怎么办？", "与此无关的话"]).keys() == {0}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("against", [None, []])
def test_training_data_without_a_test_are_noted(against, capsys):
    assert held_out(against, 0.6) == HeldOut(threshold=0.6)
    assert capsys.readouterr() == ("", "")
    assert held_out_of_training(against, 0.6) == HeldOut(threshold=0.6)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("note: no --against EDITION was given")


@pytest.mark.parametrize(
    ("against", "threshold", "message"),
    [
        (["gone"], 0.6, "There is no gone"),
        ([], 0.0, "between 0 and 1; got 0"),
        ([], 1.5, "between 0 and 1; got 1.5"),
    ],
)
def test_unusable_tests_are_refused(against, threshold, message):
    with pytest.raises(BuildError, match=message):
        held_out(against, threshold)
