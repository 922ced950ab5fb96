"""Forgetting: nothing of a text is left, all else is as before, and a kill in between changes nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rule_judges
import yaml
from tests.medteb_mteb.curation.diseases import DISEASES
from typer.testing import CliRunner

from mar_st.errors import MarError
from mar_st.text.texts import text_digest
from medteb_mteb.cli import app
from medteb_mteb.curation.build import BuildSettings, build
from medteb_mteb.curation.edition.append import AppendSettings, append
from medteb_mteb.curation.forget.files import WORK_FILE
from medteb_mteb.curation.forget.texts import Texts, collect, passages_of
from medteb_mteb.curation.llm.journal import Answer, Journal
from medteb_mteb.curation.llm.settings import LLM
from medteb_mteb.editions import load_edition, verify
from medteb_mteb.folders.content import read_folder
from medteb_mteb.folders.live import read_live

DOCUMENT = (
    "去年冬天我在老家突然咳血，邻居连夜开拖拉机送我去镇上卫生院，大夫说是支气管扩张，住了十二天才回来。"
)
QUERY = "外公八十七岁咳血住院十二天，出院以后还能不能坐长途火车去海南过冬"
PERSON = ("q-person", "d-person")
NAMED = {"queries": "queries", "documents": "documents"}
STEPS = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
    {"step": "anonymize", "name": "documents", "in": "documents.jsonl"},
    {"step": "pool", **NAMED, "retrievers": ["bm25"], "size": 5, "depth": 5},
    {"step": "judge", **NAMED, "pools": "pool"},
    {"step": "consensus", "name": "labels", "in": "judge"},
    {"step": "assemble", "labels": "labels", **NAMED, "edition": "clinic", "test": 0.5, "small": True},
    {"step": "pairs", "queries": ["queries"], "documents": ["documents"]},
]


@pytest.fixture(scope="module")
def made(tmp_path_factory, endpoint):
    """A folder with raw texts, a build, vectors, an index, a run; made once by the commands themselves."""
    from mar_st.encode.encoding import encode_corpus
    from mar_st.index.build import build_index

    root = tmp_path_factory.mktemp("made") / "clinic"
    root.mkdir()
    queries = {f"q{i}": f"{name}应该怎么治疗" for i, name in enumerate(DISEASES)}
    documents = {f"d{i}": f"{name}的治疗以休息和按时用药为主。" for i, name in enumerate(DISEASES)}
    for name, texts, person in (
        ("queries", queries, (PERSON[0], QUERY)),
        ("documents", documents, (PERSON[1], DOCUMENT)),
    ):
        rows = [{"_id": key, "text": text} for key, text in [*texts.items(), person]]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (root / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    with rule_judges.serving(endpoint) as url:
        judges = [{"name": name, "model": name, "base_url": url} for name in ("rule-words", "rule-strict")]
        content = {"judges": judges, "licence": "cc-by-4.0", "steps": STEPS}
        (root / "build.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        build(BuildSettings(file=root / "build.yaml"))
        encode_corpus("mar-mini", root / "documents.jsonl", root / "vectors", show_progress=False)
        build_index(root / "vectors", root / "index", progress=False)
        with Journal(root / "build" / "answers.sqlite") as journal, journal.transaction():
            llm = LLM(name="writer", model="writer", base_url=url)
            journal.put(b"1", 0, llm, Answer(f"改写：{QUERY}", tokens_in=9), [])
            journal.put(b"2", 0, llm, Answer("没有什么", tokens_in=9), [QUERY])
            journal.put(b"3", 0, llm, Answer("别人的", tokens_in=9), ["别人的问题"])
        run = [f"{query} Q0 {document} 1 1.0 x\n" for query in queries for document in ("d0", PERSON[1])]
        (root / "mine.trec").write_text("".join(run), encoding="utf-8")
        yield root


@pytest.fixture
def tree(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "clinic"))


def forget(tree, *options):
    return CliRunner().invoke(app, ["forget", *PERSON, "--in", str(tree), *options])


def holding(tree):
    """The files whose bytes hold a part of a text, by a search of its own."""
    parts = [text[start : start + 12].encode() for text in (DOCUMENT, QUERY) for start in (0, 9, 17)]
    parts += [name.encode() for name in PERSON]
    files = [path for path in tree.rglob("*") if path.is_file()]
    return {path.name for path in files if any(part in path.read_bytes() for part in parts)}


def contents(tree):
    """Bytes of all files but journals, locks and the times in records; the index by what it finds."""
    kept = (path for path in tree.rglob("*") if path.is_file() and path.suffix != ".sqlite")
    files = {path.relative_to(tree).as_posix(): path.read_bytes() for path in kept}
    return {
        name: content
        for name, content in files.items()
        if not name.startswith("index/") and Path(name).name not in (".lock", WORK_FILE)
    }


def found_in(index):
    from mar_st.index.base import Index

    opened = Index.open(index)
    hits = opened.find_words(["治疗", "咳血住院", "休息用药"], 50, None)
    return [opened.ids(keys) for keys in hits.keys], hits.scores


def test_nothing_of_a_text_is_left_and_all_else_is_as_before(tree, endpoint):
    assert holding(tree) >= {"answers.sqlite", "documents.arrow", "000000.arrow", "corpus.jsonl", "mine.trec"}
    before = contents(tree)
    assert forget(tree, "--dry-run").exit_code == 0
    assert contents(tree) == before
    result = forget(tree)
    assert result.exit_code == 0, result.output
    assert holding(tree) == set()
    assert not (tree / WORK_FILE).exists()
    after = contents(tree)
    assert after.keys() == before.keys()
    for name, content in before.items():
        if name.endswith((".jsonl", ".tsv", ".trec")):
            whole = [line for line in content.splitlines() if not any(one.encode() in line for one in PERSON)]
            texts = ("queries.jsonl", "documents.jsonl", "corpus.jsonl", ".tsv", ".trec")
            if name.endswith(texts):
                assert after[name].splitlines() == whole
            else:
                assert len(after[name].splitlines()) >= len(whole)
    edition = load_edition(tree / "build" / "data" / "MedTEBRetrieval")
    verify(edition)
    lines = (edition.path / "corpus.jsonl").read_text().splitlines()
    assert (edition.version, edition.counts["corpus"]) == ("1.1.0", len(lines))
    assert edition.extra["history"][0]["changes"]["forgotten"]["corpus"] == 1


def test_the_same_build_runs_nothing_and_buys_nothing(tree, endpoint):
    accounts = _accounts(tree)
    assert forget(tree).exit_code == 0
    asked = endpoint.requests
    report = build(BuildSettings(file=tree / "build.yaml"))
    assert [one["kept"] for one in report["steps"]] == [True] * len(STEPS)
    assert endpoint.requests == asked
    assert _accounts(tree) == accounts
    assert holding(tree) == set()
    with sqlite3.connect(tree / "build" / "answers.sqlite") as db:
        written = "SELECT text FROM answers WHERE llm = 'writer' ORDER BY id"
        assert db.execute(written).fetchall() == [("",), ("",), ("别人的",)]
        digests = [hashlib.sha256(text.encode()).digest()[:16] for text in (QUERY, DOCUMENT)]
        known = "SELECT (SELECT count(*) FROM shown WHERE text IN (?1, ?2)), count(*) FROM grades"
        assert db.execute(f"{known} WHERE query IN (?1, ?2) OR document IN (?1, ?2)", digests).fetchone() == (
            0,
            0,
        )
        assert db.execute("SELECT count(*) FROM grades").fetchone()[0] > 0


def _accounts(tree):
    with sqlite3.connect(tree / "build" / "answers.sqlite") as db:
        query = "SELECT llm, count(*), sum(tokens_in), sum(tokens_out) FROM answers GROUP BY llm"
        return db.execute(query).fetchall()


def test_vectors_and_index_are_those_of_the_other_documents(tree, tmp_path):
    import numpy as np

    from mar_st.encode.folder import VectorFolder
    from mar_st.index.build import build_index

    before = VectorFolder.open(tree / "vectors")
    rows = [row for row, name in enumerate(before.ids.to_pylist()) if name != PERSON[1]]
    expected = before[rows]
    assert forget(tree).exit_code == 0
    after = VectorFolder.open(tree / "vectors")
    after.verify()
    assert np.array_equal(after[:], expected)
    build_index(tree / "vectors", tmp_path / "fresh", corpus=tree / "documents.jsonl", progress=False)
    ids, scores = found_in(tree / "index")
    fresh_ids, fresh_scores = found_in(tmp_path / "fresh")
    assert ids == fresh_ids
    assert np.array_equal(scores, fresh_scores)


@pytest.mark.thorough(but=["3", "13"])
@pytest.mark.parametrize("writes", [1, 3, 8, 13, 21, 30])
def test_a_kill_changes_nothing(tree, tmp_path, monkeypatch, writes):
    whole = Path(shutil.copytree(tree, tmp_path / "whole"))
    assert forget(whole).exit_code == 0
    left, replace = [writes], Path.replace

    def killed(path, target):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        assert forget(tree).exit_code != 0
    assert (tree / WORK_FILE).stat().st_mode & 0o077 == 0
    result = forget(tree)
    assert result.exit_code == 0, result.output
    assert not (tree / WORK_FILE).exists()
    assert contents(tree) == contents(whole)
    assert str(found_in(tree / "index")) == str(found_in(whole / "index"))


def test_copies_that_are_left_are_found(tree):
    part = DOCUMENT[7:40]
    with gzip.open(tree / "backup.gz", "wb") as stream:
        stream.write(part.encode())
    pq.write_table(pa.table({"note": [None, QUERY]}), tree / "old.parquet.bak")
    (tree / "server.log").write_text(json.dumps({"text": part}), encoding="ascii")
    (tree / "old.doc").write_bytes(b"\0\1" + part.encode("gb18030"))
    with sqlite3.connect(tree / "notes.db") as db:
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE notes (text TEXT)")
        db.execute("INSERT INTO notes VALUES (?)", (QUERY,))
        db.execute("DELETE FROM notes")
    planted = {"backup.gz", "old.parquet.bak", "server.log", "old.doc", "notes.db"}
    result = forget(tree, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert {Path(path).name for path in report["left"]} == planted
    for name in planted:
        (tree / name).unlink()
    assert forget(tree).exit_code == 0
    assert not (tree / WORK_FILE).exists()


def test_models_and_endpoints_that_had_a_text_are_named(tree):
    for name, file in (("old", "raw.jsonl"), ("new", "pairs/corpus.jsonl")):
        (tree / name).mkdir()
        card = f"| data | source | sha256 |\n|---|---|---|\n| x | `build/{file}` | `{'a' * 64}` |\n"
        (tree / name / "README.md").write_text(card)
    report = json.loads(forget(tree, "--json").stdout)
    assert [Path(one).name for one in report["models"]] == ["new"]
    assert {one.split()[0].rstrip(":") for one in report["received"]} == {
        "rule-words",
        "rule-strict",
        "writer",
    }


def test_an_id_of_two_persons_is_refused(tree):
    row = json.dumps(
        {"_id": PERSON[1], "text": "完全不同的一段话，讲的是另外一个人的膝盖手术和康复训练安排。"}
    )
    (tree / "others.jsonl").write_text(row + "\n", encoding="utf-8")
    assert isinstance(forget(tree).exception, MarError)
    assert (tree / "others.jsonl").read_text() == row + "\n"
    assert forget(tree, "--every").exit_code == 0
    assert (tree / "others.jsonl").read_text() == ""


def test_lists_lose_what_belongs_together():
    texts = Texts(ids={"d2"}, values={DOCUMENT}, passages=set(passages_of(DOCUMENT)))
    row = {
        "query-id": "q1",
        "negative-ids": ["d1", "d2"],
        "negatives": ["a", "b"],
        "positives": ["c"],
        "scores": [0.1, 0.2],
        "ranks": {"bm25": [1, None]},
    }
    assert texts.cut(row) == {
        "query-id": "q1",
        "negative-ids": ["d1"],
        "negatives": ["a"],
        "positives": ["c"],
        "scores": [0.1],
        "ranks": {"bm25": [1]},
    }
    assert texts.cut({"query": "x", "positives": ["t\n" + DOCUMENT]}) is None
    assert texts.cut({"_id": "d3", "text": DOCUMENT}) == {"_id": "d3", "text": DOCUMENT}
    assert texts.cut({"query-id": "q1", "corpus-id": "d2"}) is None


def test_passages_of_other_texts_are_not_theirs():
    phrase = "请问医生这种情况需要去医院做进一步检查吗谢谢"
    rows = [
        (Path("a"), {"_id": "q1", "text": phrase + DOCUMENT}),
        (Path("a"), {"_id": "q2", "text": phrase + "另一段"}),
    ]
    texts = collect({"q1"}, lambda: rows, every=False)
    assert not texts.holds(phrase + "另一段")
    assert texts.holds("引用：" + DOCUMENT)


def test_the_question_of_a_rubric_is_a_text_of_its_case():
    rubric = {"_id": "q1", "prompt": [{"role": "user", "content": f"{DOCUMENT}\n{QUERY}"}], "rubrics": []}
    texts = collect({"q1"}, lambda: [(Path("rubrics.jsonl"), rubric)], every=False)
    assert text_digest(f"{DOCUMENT}\n{QUERY}") in texts.digests


def test_slices_of_a_live_edition_log_the_removal_and_stay_valid(tmp_path):
    data, live = tmp_path / "data", tmp_path / "live"
    days = ["2026-10-03", "2026-10-20", "2026-11-05", "2026-11-30", "2026-10-25"]
    (data / "qrels").mkdir(parents=True)
    for name, prefix, texts in (
        ("queries", "q", [f"{disease}怎么办" for disease in DISEASES[:5]]),
        ("corpus", "d", [f"{disease}的治疗以休息为主" for disease in DISEASES[:5]]),
    ):
        rows = zip(texts, days, strict=True)
        dated = [{"_id": f"{prefix}{n}", "text": text, "date": day} for n, (text, day) in enumerate(rows)]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in dated))
    pairs = "".join(f"q{number}\td{number}\t1\n" for number in range(5))
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + pairs)
    settings = AppendSettings(live=live, data=data, licence="cc-by-4.0")
    append(settings)
    before = read_live(live)
    result = CliRunner().invoke(app, ["forget", "q0", "d0", "d1", "--in", str(data), "--in", str(live)])
    assert result.exit_code == 0, result.output
    after = read_live(live)
    assert after.log[:2] == before.log
    assert [(one.slice, one.forgotten) for one in after.log[2:]] == [
        ("2026-10", {"corpus": 2, "labels": 2, "queries": 2, "qrels": 2}),
        ("2026-11", {"corpus": 2}),
    ]
    for month, entry in after.slices.items():
        verify(load_edition(live / month))
        # q1 has lost its only relevant document.
        assert (
            read_folder(live / month).retrieval.qrels.keys()
            == {"2026-10": {"q4"}, "2026-11": {"q2", "q3"}}[month]
        )
        assert '"d0"' not in (live / month / "corpus.jsonl").read_text()
        assert entry.counts["corpus"] == len((live / month / "corpus.jsonl").read_text().splitlines())
    assert [one["new"] for one in append(settings)["slices"]] == [False, False]
