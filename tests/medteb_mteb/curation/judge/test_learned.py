"""A judge that is a cross-encoder, next to one that is an LLM."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.mar_st.conftest import save_cross_encoder

from mar_st.graded import GradedPair, Grader, GraderSettings, train_grader
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import Judges, estimate, judge

LETTERS = "DCBAS"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cross-encoder that was trained for a moment, with thresholds that tell something apart."""
    place = tmp_path_factory.mktemp("learned")
    save_cross_encoder(place / "base", 1)
    pairs = [
        GradedPair(f"{query}{number}", text, label)
        for number, query in enumerate(["高血压", "头疼", "咳嗽"] * 4)
        for label, text in enumerate(["感冒发热", "咳嗽怎么办", "头疼", "高血压", "高血压医生你好"])
    ]
    how = GraderSettings(max_length=32, epochs=4, batch_size=8, learning_rate=1e-2, calibration=0.4, folds=2)
    return train_grader(pairs, place / "base", place / "judge", how).folder


def graded(report, name):
    lines = (report.folder / "judgements.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["judge"] == name]
    return {(row["query-id"], row["corpus-id"]): row["grade"] for row in rows}


def run(source, config, out="out", **options):
    return judge(
        *source.paths, source.folder / out, config, already_anonymous=True, show_progress=False, **options
    )


@pytest.mark.thorough
def test_a_cross_encoder_judges_together_with_an_llm(folder, make_input, make_server, endpoint, judges_of):
    source, server = make_input(4, 20), endpoint()
    llm = judges_of(make_server(server)).judges[0].model_dump()
    entries = [llm, {"name": "learned", "cross_encoder": str(folder)}]
    config = Judges.model_validate({"judges": entries, "check_positives": False})
    first = estimate(*source.paths, config)
    assert [(one.judge, one.requests > 0, one.cost) for one in first] == [
        ("words", True, 0.0),
        ("learned", False, 0.0),
    ]
    assert first[1].judgements == source.pairs
    report = run(source, config)
    assert report.complete
    queries = {row["_id"]: row["text"] for row in source.rows("queries")}
    documents = {row["_id"]: f"{row['title']}\n{row['text']}" for row in source.rows("documents")}
    grades = graded(report, "learned")
    labels = Grader(folder).label([(queries[q], documents[d]) for q, d in grades])
    assert list(grades.values()) == [LETTERS[label] for label in labels]
    assert len(grades) == source.pairs == len(graded(report, "words"))
    (result,) = [one for one in report.judges if one.name == "learned"]
    assert (result.bought, result.account.answers, result.account.cost) == (source.pairs, 0, 0.0)
    # Pairs with a known grade are not graded again.
    again = run(source, config, "again")
    assert [(one.bought, one.known) for one in again.judges] == [(0, source.pairs)] * 2
    assert graded(again, "learned") == grades
    assert estimate(*source.paths, config, out=source.folder / "out")[1].known == source.pairs


def test_other_thresholds_are_another_judge(folder, make_input, tmp_path):
    import shutil

    source = make_input(2, 8)
    config = Judges.model_validate({"judges": [{"name": "learned", "cross_encoder": str(folder)}]})
    run(source, config)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    content = json.loads((other / "thresholds.json").read_text("utf-8"))
    content["bounds"] = [2.0] * len(content["bounds"])  # beyond every score
    (other / "thresholds.json").write_text(json.dumps(content), encoding="utf-8")
    changed = Judges.model_validate({"judges": [{"name": "learned", "cross_encoder": str(other)}]})
    report = run(source, changed, "changed")
    assert set(graded(report, "learned").values()) == {"D"}
    assert report.judges[0].known == 0


def test_unusable_settings_are_refused(folder, make_input, tmp_path):
    source = make_input(1, 4)
    file = tmp_path / "judges.yaml"
    file.write_text(yaml.safe_dump({"judges": [{"name": "a", "cross_encoder": str(folder), "model": "m"}]}))
    with pytest.raises(BuildError, match=r"judges\.0\.cross-encoder\.model"):
        run(source, file)
    nowhere = Judges.model_validate({"judges": [{"name": "a", "cross_encoder": str(tmp_path / "none")}]})
    with pytest.raises(BuildError, match=r"Judge a: .* holds no thresholds.json"):
        run(source, nowhere)
    with pytest.raises(ValueError, match="the same"):
        Judges.model_validate({"judges": [{"name": name, "cross_encoder": str(folder)} for name in "ab"]})
