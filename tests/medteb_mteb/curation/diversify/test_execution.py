"""The step over a source: an approximate search is measured, an exact one needs no measurement."""

from __future__ import annotations

import json

import numpy as np
import pytest

from medteb_mteb.curation.diversify.core import Search, diversify
from medteb_mteb.curation.diversify.execution import CENTRES_FILE, DISAGREEMENT_FILE, run_diversify
from medteb_mteb.curation.diversify.rule import SelectionRule
from medteb_mteb.curation.diversify.sources import PrecomputedVectors
from medteb_mteb.curation.files.read import read_texts

RULE = SelectionRule(0.8, seed_size=10)


@pytest.fixture
def run(source, vectors, tmp_path):
    """Runs the step into a folder; gives its report and the measurement."""
    given = PrecomputedVectors(vectors, [f"t{i}" for i in range(90)])

    def call(name, search, **options):
        return run_diversify(source, tmp_path / name, given, RULE, search, show_progress=False, **options)

    return call


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_an_exact_search_keeps_what_the_function_keeps_and_is_not_measured(run, vectors, tmp_path):
    report, measured = run("exact", Search())
    mask = diversify(np.load(vectors), threshold=0.8, seed_size=10)
    assert [text.id for text in read_texts(tmp_path / "exact")] == [f"t{i}" for i in np.flatnonzero(mask)]
    assert (report.read, report.kept) == (90, mask.sum())
    assert measured is None
    assert not (tmp_path / "exact" / DISAGREEMENT_FILE).exists()


def test_a_search_of_all_lists_decides_as_an_exact_one(run, tmp_path):
    report, _ = run("exact", Search())
    everywhere, measured = run("all", Search("ivf", lists=3, probes=3))
    assert (everywhere.kept, everywhere.dropped) == (report.kept, report.dropped)
    exact, approximate = contents(tmp_path / "exact"), contents(tmp_path / "all")
    for name in ("records-00000.jsonl", "dropped-00000.jsonl"):
        assert approximate[name] == exact[name]
    assert (measured.sampled, measured.share) == (80, 0)


def test_an_approximate_search_is_measured_and_its_centres_are_removed(run, tmp_path):
    search = Search("ivf", lists=20, probes=1)
    report, measured = run("out", search, sample=30)
    assert measured.sampled == 30
    assert measured.kept > 0
    assert json.loads((tmp_path / "out" / DISAGREEMENT_FILE).read_text()) == measured.to_json()
    assert not (tmp_path / "out" / CENTRES_FILE).exists()
    before = contents(tmp_path / "out")
    again, same = run("out", search, sample=30)
    assert (again.kept, again.resumed, same) == (report.kept, 90, measured)
    assert contents(tmp_path / "out") == before


def test_the_measurement_is_of_the_columns_that_were_read(run, source, tmp_path):
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    _, plain = run("plain", Search("ivf", lists=20, probes=1))
    renamed = [{"_id": row["_id"], "asked": row["text"]} for row in rows]
    source.write_text("".join(json.dumps(row) + "\n" for row in renamed))
    report, measured = run("renamed", Search("ivf", lists=20, probes=1), columns={"text": "asked"})
    assert report.read == 90
    assert measured == plain
