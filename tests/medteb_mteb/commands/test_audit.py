from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from medteb_mteb.curation.labels.grades import Judgement
from medteb_mteb.editions import load_edition

#: Both judges find the released document of `q0` irrelevant; of the other queries, only one does.
JUDGEMENTS = [
    Judgement(
        query_id=f"q{i}", document_id=f"d{j}", judge=judge, grade=grade if judge == "a" or not i else "S"
    )
    for judge in ("a", "b")
    for i, j, grade in ((0, 0, "D"), (1, 1, "D"), (2, 2, "D"), (0, 5, "S"))
]


@pytest.fixture
def audit(medteb, retrieval_folder, tmp_path, monkeypatch):
    """Runs `medteb audit` in the benchmark's folder; pools and judges are not asked."""
    retrieval_folder(tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")
    graded = SimpleNamespace(judgements=JUDGEMENTS, judges=["a", "b"], failed=[])
    monkeypatch.setattr("medteb_mteb.curation.pooling.pool.pool", lambda *_, **__: tmp_path)
    monkeypatch.setattr("medteb_mteb.curation.judge.judge", lambda *_, **__: SimpleNamespace(complete=True))
    monkeypatch.setattr("medteb_mteb.curation.labels.grades.read_judging", lambda _: graded)
    monkeypatch.setattr("medteb_mteb.curation.labels.provenance.provenance_of_judging", lambda _: {})

    def call(*options, out="audited"):
        args = ("--judges", "judges.yaml", "-r", "bm25", "-q", *options)
        return medteb("audit", ".", tmp_path / out, *args)

    return call


def test_the_corrected_edition_follows_the_options_of_the_last_audit(audit, tmp_path):
    edition = tmp_path / "audited" / "own-corrected"
    changes = []
    for option in ([], ["--keep-false-positives"]):
        code, out, err = audit(*option)
        assert code == 0, err
        assert f"corrected edition: {edition}" in out
        changes.append(load_edition(edition).extra["corrected"])
    assert [(one["added"], one["removed"]) for one in changes] == [(1, 1), (1, 0)]
    assert load_edition(edition).task == "own"


def test_an_edition_that_was_changed_is_named_and_the_audit_is_written(audit, tmp_path):
    edition = tmp_path / "audited" / "own-corrected"
    edition.mkdir(parents=True)
    (edition / "mine.txt").touch()
    code, out, err = audit()
    assert code == 0
    assert f"no corrected edition: {edition} is not empty" in err
    assert "corrected edition" not in out
    assert json.loads((tmp_path / "audited" / "audit.json").read_text())["rule"] == "unanimous"


@pytest.mark.parametrize("out", ["own", "own/audited"])
def test_the_benchmark_is_not_written_to(audit, tmp_path, out):
    before = sorted((tmp_path / "own").rglob("*"))
    code, _, err = audit(out=out)
    assert code == 2
    assert "is part of the input ." in err
    assert sorted((tmp_path / "own").rglob("*")) == before
