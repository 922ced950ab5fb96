"""`medteb diversify` with vectors that were computed before."""

from __future__ import annotations

import json

import numpy as np
import pytest

from medteb_mteb.curation.files.read import read_texts

#: Angles of texts in degrees: the cosine of the first with the others is 0.839, 0.809 and below 0.
ANGLES = (0, 33, 36, 130)
ARGS = ("diversify", "texts.jsonl", "out", "--vectors", "vectors.npy", "-q")
#: Every text after the first is compared, and one near neighbour is one too many.
STRICT = ("--seed-size", "1", "--tolerated", "0")


@pytest.fixture
def texts(work, write):
    write(work / "texts.jsonl", [{"_id": f"t{angle}", "text": f"第{angle}问"} for angle in ANGLES])
    angles = np.deg2rad(ANGLES)
    np.save(work / "vectors.npy", np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    return work


def kept(folder):
    return [text.id for text in read_texts(folder)]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--kind", "queries", *STRICT), ["t0", "t33", "t130"]),
        (("--kind", "documents", *STRICT), ["t0", "t130"]),
        (("--kind", "documents", *STRICT, "--threshold", "0.9"), ["t0", "t33", "t130"]),
        (("--kind", "documents", "--seed-size", "1"), ["t0", "t33", "t130"]),
        (("--kind", "documents"), ["t0", "t33", "t36", "t130"]),
    ],
)
def test_the_kind_of_text_sets_the_threshold_and_options_change_the_rule(medteb, texts, more, expected):
    code, out, err = medteb(*ARGS, *more)
    assert (code, err) == (0, "")
    assert kept(texts / "out") == expected
    share = 1 - len(expected) / 4
    assert out == f"{len(expected)} of 4 texts kept, {share:.1%} dropped: out\n"


def test_a_second_run_resumes_and_dropped_texts_name_their_neighbour(medteb, texts, rows_of):
    first = json.loads(medteb(*ARGS, "--kind", "queries", *STRICT, "--json")[1])
    (dropped,) = rows_of(texts / "out" / "dropped-00000.jsonl")
    assert dropped["_id"] == "t36"
    assert "t33 0.9986" in dropped.values()
    again = json.loads(medteb(*ARGS, "--kind", "queries", *STRICT, "--json")[1])
    assert again == first | {"resumed": 4}
    assert (first["read"], first["kept"], first["resumed"]) == (4, 3, 0)


def test_sources_are_recorded_for_later_steps(medteb, texts):
    code, _, err = medteb(*ARGS, "--kind", "queries", "--source", "huatuo=apache-2.0")
    assert code == 0, err
    step = json.loads((texts / "out" / "step.json").read_text("utf-8"))
    assert step["sources"] == [{"name": "huatuo", "licence": "apache-2.0"}]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--kind", "answers"), "'answers' is not one of 'queries', 'documents'"),
        (("--kind", "queries", "-k", "1"), "Make k larger"),
        (("--kind", "queries", "--threshold", "1"), "must be 0.05 or more and below 1"),
        (("--kind", "queries", "--column", "text"), "--column takes FIELD=COLUMN"),
        (("--kind", "queries", "--source", "=mit"), "--source =mit: "),
    ],
)
def test_unusable_settings_are_refused(refused, texts, more, message):
    assert message in refused(*ARGS, *more)
    assert not (texts / "out" / "manifest.json").exists()


def test_vectors_of_other_texts_are_refused(refused, texts, write):
    write(texts / "texts.jsonl", [{"_id": "t0", "text": "第0问"}])
    assert "vectors.npy" in refused(*ARGS, "--kind", "queries")


@pytest.mark.parametrize("index", ["exact", "ivf"])
def test_texts_kept_for_vectors_of_zeros_are_counted_in_a_warning(medteb, texts, caplog, index):
    vectors = np.load(texts / "vectors.npy")
    vectors[[1, 2]] = 0
    np.save(texts / "vectors.npy", vectors)
    code, out, _ = medteb(*ARGS, "--kind", "queries", *STRICT, "--index", index)
    assert (code, out.splitlines()[0]) == (0, "4 of 4 texts kept, 0.0% dropped: out")
    assert ["2 texts were kept because" in record.getMessage() for record in caplog.records] == [True]


def test_vectors_of_width_0_are_refused(refused, texts):
    np.save(texts / "vectors.npy", np.zeros((4, 0), dtype=np.float32))
    assert "vectors.npy holds vectors of width 0" in refused(*ARGS, "--kind", "queries")
