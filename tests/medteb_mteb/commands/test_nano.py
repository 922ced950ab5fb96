"""`medteb nano` and `medteb build nano`: scores of saved rankings, and input that is refused."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from tests.medteb_mteb.nano.sets import write_set

from medteb_mteb.nano.rankings import SUFFIX, KeptRankings, write_rankings

ONE = KeptRankings("TaskA", "org/one", "r1", {"q1": ["d1"], "q2": ["d2"]}, {"q1": ["d1"], "q2": ["d3", "d2"]})
TWO = KeptRankings("TaskB", "org/longer-name", "r2", {"q1": ["d1"]}, {"q1": ["d2"]})


@pytest.fixture
def kept(tmp_path):
    """Two rankings in folders of their models, as `medteb run` keeps them."""
    for one in (ONE, TWO):
        write_rankings(tmp_path / "rankings" / one.model.replace("/", "__") / f"{one.task}{SUFFIX}", one)
    return tmp_path / "rankings"


def test_scores_need_kept_rankings(medteb, tmp_path):
    code, _, error = medteb("nano", "score", tmp_path)
    assert (code, "no saved rankings" in error) == (2, True)
    (tmp_path / "x.json").write_text("{}")
    code, _, error = medteb("nano", "score", tmp_path / "x.json")
    assert (code, "expected rankings kept by `medteb run`" in error) == (2, True)


def test_kept_rankings_are_scored_without_model_and_data(medteb, kept):
    code, out, err = medteb("nano", "score", kept, "--json")
    assert (code, err) == (0, "")
    expected = [
        {
            "task": one.task,
            "model": one.model,
            "dataset_revision": one.dataset_revision,
            **asdict(one.scores()),
        }
        for one in (TWO, ONE)  # by path
    ]
    assert json.loads(out) == expected
    header, second, first = medteb("nano", "score", kept)[1].splitlines()
    assert header.split()[0] == "ndcg_at_10"
    assert second.split() == ["org/longer-name", "TaskB", *["0.0000"] * 6]
    ndcg = (1 + 0.6309) / 2  # 1 / log2(3) at the second place
    assert first.split() == [
        "org/one",
        "TaskA",
        f"{ndcg:.4f}",
        "1.0000",
        "1.0000",
        "1.0000",
        "0.7500",
        "0.7500",
    ]
    assert len(header) == len(second) == len(first)


def test_a_file_and_its_folder_are_the_same(medteb, kept):
    files = sorted(kept.rglob(f"*{SUFFIX}"))
    assert medteb("nano", "score", *files) == medteb("nano", "score", kept)


def test_every_figure_is_checked_and_a_difference_is_an_exit_code(medteb, tmp_path):
    own, published = write_set(tmp_path / "Own", ["s"]), write_set(tmp_path / "NanoCMTEB", ["medical"])
    code, out, _ = medteb("nano", "check", own, published, "--json")
    assert code == 1
    rows = json.loads(out)
    texts = medteb("nano", "check", own, published)[1].splitlines()
    assert len(texts) == len(rows)
    assert [text.endswith("DIFFERS") for text in texts] == [not row["agrees"] for row in rows]
    assert medteb("nano", "check", own)[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nano", "check", "Nowhere"), "Nowhere: no such folder, and no published set"),
        (("nano", "check", "NanoCMTEB", "--tolerance", "-1"), "'--tolerance'"),
        (("build", "nano", "Nowhere", "out"), "no such folder"),
        (("build", "nano", "clinic", "out", "--queries", "0"), "'--queries'"),
        (
            ("build", "nano", "clinic", "out", "-q", "--tokens", "words"),
            "jieba or regex; got 'words'",
        ),
        (("build", "nano", "clinic", "clinic", "-q"), "holds other files"),
    ],
)
def test_unusable_input_is_refused(refused, retrieval_folder, work, args, message):
    retrieval_folder(work / "clinic")
    assert message in refused(*args)
    assert not (work / "out").exists()
