"""Tests of an alignment's working folder, of digests of texts, and of the card."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from mar_st.spaces import SpaceError
from mar_st.spaces.records import card, claim, digest, summary
from mar_st.spaces.students import DONE_FILE

SETTINGS = {"teacher": "模型", "options": {"dim": None, "seed": 1}}
DAMAGED = [b"", b'{"teacher": ', b"\xff", pytest.param(b"[" * 100_000, id="deep")]


@pytest.fixture
def work(tmp_path):
    claim(tmp_path / "out.run", SETTINGS)
    return tmp_path / "out.run"


def train(work):
    (work / "align").mkdir()
    (work / "align" / DONE_FILE).write_text("{}")


def test_the_same_settings_resume_what_was_trained(work):
    train(work)
    claim(work, json.loads(json.dumps(SETTINGS)))
    assert (work / "align" / DONE_FILE).is_file()


def test_other_settings_replace_a_run_that_has_trained_nothing(work):
    (work / "align").mkdir()
    claim(work, {**SETTINGS, "teacher": "other"})
    assert not (work / "align").exists()
    train(work)
    claim(work, {**SETTINGS, "teacher": "other"})
    with pytest.raises(SpaceError, match="other texts or settings"):
        claim(work, SETTINGS)


@pytest.mark.parametrize("trained", ["align/done.json", "rung-2/checkpoints/checkpoint-3/weights"])
@pytest.mark.parametrize("content", [None, *DAMAGED])
def test_weights_of_unknown_settings_are_not_resumed(work, trained, content):
    (work / trained).parent.mkdir(parents=True)
    (work / trained).touch()
    (work / "settings.json").unlink()
    if content is not None:
        (work / "settings.json").write_bytes(content)
    with pytest.raises(SpaceError, match=r"out\.run holds an unfinished alignment .* delete the folder"):
        claim(work, SETTINGS)
    assert (work / trained).is_file()


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_settings_of_a_run_that_has_trained_nothing_are_replaced(work, content):
    (work / "settings.json").write_bytes(content)
    claim(work, SETTINGS)
    assert json.loads((work / "settings.json").read_text(encoding="utf-8")) == SETTINGS


def test_files_of_a_folder_that_is_not_a_run_are_kept(tmp_path):
    (tmp_path / "out.run").mkdir()
    (tmp_path / "out.run" / "thesis.txt").write_text("mine")
    claim(tmp_path / "out.run", SETTINGS)
    assert (tmp_path / "out.run" / "thesis.txt").read_text() == "mine"


def test_a_digest_depends_on_texts_order_and_boundaries():
    lists = [[], [""], ["ab", "c"], ["a", "bc"], ["c", "ab"], ["ab", "c", ""], ["\u00e9"], ["e\u0301"]]
    assert len({digest(texts) for texts in lists}) == len(lists)
    assert digest(("ab", "c")) == digest(["ab", "c"])


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"overlap_at_10": 0.5, "cosine_query": 0.98765}, "cosine of queries 0.988, overlap@10 0.500"),
        ({"cosine_document": 1, "interval": [0, 1]}, "cosine of documents 1.000"),
        ({}, "too few texts to hold some out"),
    ],
)
def test_a_summary_names_what_was_measured(report, line):
    assert summary(report) == line


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dim", [32, 64])
def test_a_card_has_valid_metadata_code_and_the_last_agreement(tmp_path, whole, dim):
    modules = [{"type": "sentence_transformers.base.modules.Transformer", "path": ""}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    agreement = {"aligned": {"cosine_query": 0.5}, "refined": {"cosine_query": 0.75}}
    manifest = {"agreement": agreement, "dim": dim, "full_dim": 64, "similarity": "cosine"}
    text = card("小", tmp_path, {**manifest, "settings": SETTINGS}, whole=whole, extra=["More."])
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["tags"] == ["mar", "asymmetric" if whole else "query-encoder"]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    compile(code, "card", "exec")
    assert ("\ndocuments = model.encode_document" in code) == whole
    assert ("32 of 64 dimensions" in text) == (dim == 32)
    assert "On held-out texts (refined): cosine of queries 0.750." in text
    assert "More." in text.splitlines()
