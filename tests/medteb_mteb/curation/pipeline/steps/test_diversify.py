"""The step `diversify`: vectors of its model, and the threshold of the kind of its texts."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from medteb_mteb.curation import diversify
from medteb_mteb.curation.diversify.vectors import unit

DIVERSIFY = {"step": "diversify", "in": "documents.jsonl", "model": "org/model", "seed_size": 10}


@pytest.fixture
def encoded(monkeypatch):
    """Replaces the model by vectors that are all 0.8 similar; gives its arguments."""
    asked = []

    class Alike:
        def __init__(self, model, kind, store, **options):
            asked.append((model, kind, store, options))
            self.seen = {}

        def identity(self):
            return {"kind": "alike"}

        def vectors(self, texts):
            array = np.zeros((len(texts), 100), dtype=np.float32)
            array[:, 0] = 0.8**0.5
            for row, text in enumerate(texts):
                array[row, 1 + self.seen.setdefault(text.id, len(self.seen))] = 0.2**0.5
            return unit(array)

    monkeypatch.setattr(diversify, "Encoded", Alike)
    return asked


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"kind": "documents"}, 10),
        ({"kind": "queries"}, 49),
        ({"kind": "queries", "threshold": 0.7}, 10),
        ({"kind": "documents", "threshold": 0.9}, 49),
        ({"kind": "documents", "seed_size": 20}, 20),
        ({"kind": "documents", "seed_size": 3, "tolerated": 5, "k": 9}, 6),
    ],
)
def test_texts_are_dropped_by_the_threshold_of_their_kind_unless_another_is_given(
    made, encoded, options, kept
):
    result, _ = made({**DIVERSIFY, **options})
    assert (result["read"], result["kept"]) == (49, kept)
    assert "disagreement" not in result


def test_vectors_are_those_of_the_model_kept_in_the_store_of_the_build(made, encoded, tmp_path):
    made({**DIVERSIFY, "kind": "queries", "batch_size": 7}, store="vectors")
    ((model, kind, store, options),) = encoded
    assert (model, kind, store, options["batch_size"]) == ("org/model", "queries", tmp_path / "vectors", 7)


def test_an_approximate_search_reports_its_disagreement(made, encoded):
    options = {"kind": "documents", "index": "ivf", "lists": 2, "probes": 2, "sample": 5}
    result, _ = made({**DIVERSIFY, **options})
    assert result["disagreement"]["sampled"] == 5
    assert result["kept"] == 10


def test_the_column_of_the_texts_may_be_named(made, save, encoded):
    save("faq.jsonl", [{"_id": f"f{i}", "asked": f"问题{i}"} for i in range(30)])
    step = {**DIVERSIFY, "kind": "documents", "in": "faq.jsonl", "columns": {"text": "asked"}}
    assert made(step)[0]["dropped"] == {"near-duplicate": 20}


def test_the_size_of_a_batch_does_not_change_the_output(write, quiet, encoded):
    step = {**DIVERSIFY, "kind": "documents"}
    quiet(write(steps=[step]))
    assert [one.fate for one in quiet(write(steps=[{**step, "batch_size": 5}])).steps] == ["kept"]


@pytest.mark.parametrize(
    ("key", "value"), [("kind", "titles"), ("threshold", 1.5), ("k", 0), ("index", "hnsw"), ("sample", 0)]
)
def test_impossible_options_are_refused(parsed, key, value):
    with pytest.raises(ValidationError, match=key):
        parsed(**{**DIVERSIFY, "kind": "queries", key: value})
