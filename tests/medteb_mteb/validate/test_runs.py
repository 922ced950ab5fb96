"""Runs to validate with: files by their names, and baselines that are run here."""

from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.folders import read_folder
from medteb_mteb.validate.runs import BASELINES, read_runs


@pytest.fixture
def write(tmp_path):
    """Writes a run of the tiny folder: `write("name.json", q1=["d1", ...])`, best first."""

    def call(name, **rankings):
        run = {query: {d: -float(rank) for rank, d in enumerate(ds)} for query, ds in rankings.items()}
        (tmp_path / name).write_text(json.dumps(run))
        return str(tmp_path / name)

    return call


def test_runs_are_called_after_their_files_in_the_order_given(make_folder, write, tmp_path):
    (tmp_path / "b.trec").write_text("q1 Q0 d2 1 0.5 tag\n")
    names = [str(tmp_path / "b.trec"), write("a.json", q1=["d1", "d2"])]
    runs = read_runs(names, read_folder(make_folder("Retrieval")).retrieval)
    assert list(runs.items()) == [("b", {"q1": {"d2": 0.5}}), ("a", {"q1": {"d1": 0.0, "d2": -1.0}})]


def test_two_runs_of_one_name_are_refused(make_folder, write, tmp_path):
    data = read_folder(make_folder("Retrieval")).retrieval
    (tmp_path / "other").mkdir()
    for second in ("other/a.json", "a.trec"):
        with pytest.raises(BuildError, match="Two of the runs are called 'a'; rename a file"):
            read_runs([write("a.json", q1=["d1"]), str(tmp_path / second)], data)
    with pytest.raises(BuildError, match=f"called {BASELINES[0]!r}"):
        read_runs([write(f"{BASELINES[0]}.json", q1=["d1"]), BASELINES[0]], data)


@pytest.mark.parametrize("content", [{"q9": {"d1": 1.0}}, {"q1": {"d9": 1.0}}, {"q1": {"d1": None}}, {}])
def test_a_run_of_other_data_is_refused(make_folder, tmp_path, content):
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(MarError, match=r"a\.json"):
        read_runs([str(tmp_path / "a.json")], read_folder(make_folder("Retrieval")).retrieval)
