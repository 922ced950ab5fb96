"""Live editions: slices are added, committed to and revealed, and what was scored before never changes."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest
from tests.conftest import write_jsonl, write_judged

from mar_st.errors import MarError
from medteb_mteb.curation.edition.append import (
    NEAR_COPY,
    UNANSWERED,
    AppendSettings,
    CommitSettings,
    RevealSettings,
    append,
    commit,
    reveal,
)
from medteb_mteb.editions import load_edition, verify
from medteb_mteb.folders.content import read_folder
from medteb_mteb.folders.live import SLICES, data_folders, read_live

TOPICS = (
    "感冒发热怎么办",
    "高血压患者吃什么",
    "糖尿病如何运动",
    "胃炎能不能喝酒",
    "骨折多久能走路",
    "鼻炎用什么药",
)


def write_data(folder, rows, documents=None, card="license: cc-by-4.0"):
    """A folder of retrieval: `rows` are (id, text, date) of queries, each answered by document `d-<id>`."""
    documents = documents or {f"d-{name}": date for name, _, date in rows}
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text(f"---\nlanguage: zh\n{card}\n---\n")
    dated = [(name, {"date": date} if date else {}) for name, date in documents.items()]
    write_jsonl(
        folder / "corpus.jsonl",
        [{"_id": name, "title": "题", "text": f"文 {name}", **date} for name, date in dated],
    )
    write_jsonl(
        folder / "queries.jsonl",
        [{"_id": name, "text": text, **({"date": date} if date else {})} for name, text, date in rows],
    )
    write_judged(folder, [(name, f"d-{name}", 2) for name, _, _ in rows])
    write_judged(folder, [(rows[0][0], next(reversed(documents)), 0)], "labels.tsv")
    return folder


@pytest.fixture
def two_months(tmp_path):
    dates = ("2026-10-03", "2026-10", "2026-10-31", "2026-11-01", "2026-11-05", "2026-11-30")
    rows = [(f"q{number}", text, date) for number, (text, date) in enumerate(zip(TOPICS, dates, strict=True))]
    return write_data(tmp_path / "data", rows)


def test_queries_go_to_the_months_of_their_dates_and_their_documents_up_to_then(tmp_path, two_months):
    live = tmp_path / "clinic"
    found = append(AppendSettings(live=live, data=two_months))
    assert [(one["slice"], one["counts"], one["new"]) for one in found["slices"]] == [
        ("2026-10", {"queries": 3, "corpus": 3, "qrels": 3}, True),
        ("2026-11", {"queries": 3, "corpus": 6, "qrels": 3}, True),
    ]
    october, november = (read_folder(live / month) for month in ("2026-10", "2026-11"))
    assert october.layout.name == "clinic-2026-10"
    assert october.layout.licence == "cc-by-4.0"
    assert october.layout.languages == ["zh"]
    assert october.retrieval.qrels == {f"q{n}": {f"d-q{n}": 2} for n in range(3)}
    assert october.retrieval.query_dates["q1"] == "2026-10"
    assert not october.retrieval.judged.known  # the judged negative is a document of November
    assert november.retrieval.corpus == read_folder(two_months).retrieval.corpus
    assert read_live(live).head == found["head"]


def test_appending_again_changes_nothing_and_other_data_are_refused(tmp_path, two_months, content):
    live = tmp_path / "clinic"
    first = append(AppendSettings(live=live, data=two_months))
    before = content(live)
    again = append(AppendSettings(live=live, data=two_months))
    assert again["head"] == first["head"]
    assert [one["new"] for one in again["slices"]] == [False, False]
    assert content(live) == before
    text = (two_months / "corpus.jsonl").read_text(encoding="utf-8")
    (two_months / "corpus.jsonl").write_text(text.replace("文 d-q4", "另一篇"), encoding="utf-8")
    with pytest.raises(MarError, match="2026-11 is there with other data"):
        append(AppendSettings(live=live, data=two_months))
    # Killed between the folder and the log: the folder is made again.
    shutil.copytree(live / "2026-11", tmp_path / "kept")
    log = json.loads((live / SLICES).read_text())
    (live / SLICES).write_text(json.dumps({**log, "log": log["log"][:1]}))
    append(AppendSettings(live=live, data=two_months))
    assert load_edition(live / "2026-11").digest != load_edition(tmp_path / "kept").digest


def test_near_copies_of_earlier_queries_are_left_out_and_problems_come_together(tmp_path, two_months):
    live = tmp_path / "clinic"
    append(AppendSettings(live=live, data=two_months))
    rows = [("n1", TOPICS[0] + "呢", ""), ("n2", "失眠应该挂哪个科", ""), ("n3", "孩子咳嗽怎么处理", "")]
    data = write_data(tmp_path / "new", rows, {"d-n1": "", "d-n2": "", "d-n3": ""})
    with pytest.raises(MarError, match="3 queries without a date"):
        append(AppendSettings(live=live, data=data))
    wrong = write_data(tmp_path / "wrong", [("w", "咳嗽", "10/2026")])
    with pytest.raises(MarError, match=r"(?s)2 problems.*corpus.jsonl:1.*queries.jsonl:1"):
        append(AppendSettings(live=live, data=wrong))
    (one,) = append(AppendSettings(live=live, data=data, slice="2026-12"))["slices"]
    assert one["dropped"] == {NEAR_COPY: 1}
    assert [row["id"] for row in read_folder(live / "2026-12").retrieval.queries] == ["n2", "n3"]
    late = write_data(tmp_path / "late", [("q1", "完全不同的问题一", "2027-01"), ("x", TOPICS[3], "2027-02")])
    with pytest.raises(MarError, match=r"(?s)q1.*no query is left for 2027-02: 1 near"):
        append(AppendSettings(live=live, data=late))
    unknown = write_data(tmp_path / "u", [("u1", "牙疼怎么办呢", "2027-01"), ("u2", "眼睛干涩", "2027-01")],
                         {"d-u1": "2027-02", "d-u2": "2027-01-31"})  # fmt: skip
    (one,) = append(AppendSettings(live=live, data=unknown))["slices"]
    assert one["dropped"] == {UNANSWERED: 1}
    assert sorted(path.name for path in live.iterdir() if path.name != ".lock") == [
        "2026-10", "2026-11", "2026-12", "2027-01", SLICES,
    ]  # fmt: skip


def test_a_month_that_comes_late_leaves_the_later_one_as_it_is(tmp_path):
    live, documents = tmp_path / "clinic", dict.fromkeys(("d-n1", "d-n2", "d-o1", "d-o2"), "")
    november = [("n1", TOPICS[0], "2026-11"), ("n2", TOPICS[1], "2026-11")]
    october = [("o1", TOPICS[0] + "呢", "2026-10"), ("o2", TOPICS[2], "2026-10")]
    for name, rows in (("first", november), ("late", october)):
        append(AppendSettings(live=live, data=write_data(tmp_path / name, rows, documents)))
    assert read_live(live).slices["2026-10"].dropped == {NEAR_COPY: 1}
    both = write_data(tmp_path / "both", [*october, *november], documents)
    write_judged(both, [("n1", "d-o2", 0), ("o1", "d-o2", 0)], "labels.tsv")
    assert not any(one["new"] for one in append(AppendSettings(live=live, data=both))["slices"])


def test_a_commitment_is_public_and_its_texts_later_proved_to_be_the_same(tmp_path, two_months, content):
    live, private = tmp_path / "clinic", tmp_path / "private"
    append(AppendSettings(live=live, data=two_months))
    data = write_data(tmp_path / "new", [("n1", "失眠应该挂哪个科", ""), ("n2", "孩子咳嗽怎么处理", "")])
    settings = CommitSettings(live=live, data=data, out=private, slice="2026-12")
    (made,) = commit(settings)["slices"]
    assert commit(settings)["slices"] == [{**made, "new": False}]
    public = b"".join(content(live).values()).decode()
    nonce = (private / ".nonce").read_text()
    assert made["commitment"] in public
    assert not any(text in public for text in ("失眠", "n1", nonce, made["digest"]))
    assert hashlib.sha256(bytes.fromhex(nonce + made["digest"])).hexdigest() == made["commitment"]
    with pytest.raises(MarError, match="committed"):
        append(AppendSettings(live=live, data=data, slice="2026-12"))

    other = tmp_path / "other"
    shutil.copytree(private, other)
    (other / ".nonce").write_text("0" * 64)
    changed = tmp_path / "changed"
    shutil.copytree(private, changed)
    (changed / "queries.jsonl").write_text((changed / "queries.jsonl").read_text().replace("失眠", "不眠"))
    for folder, message in ((other, "no commitment"), (changed, "queries.jsonl")):
        with pytest.raises(MarError, match=message):
            reveal(RevealSettings(live=live, private=folder))
    (shown,) = reveal(RevealSettings(live=live, private=private))["slices"]
    assert (shown["digest"], shown["new"]) == (made["digest"], True)
    assert reveal(RevealSettings(live=live, private=private))["slices"] == [{**shown, "new": False}]
    verify(load_edition(live / "2026-12"))
    assert not (live / "2026-12" / ".nonce").exists()
    assert list(read_live(live).slices) == ["2026-10", "2026-11", "2026-12"]


@pytest.mark.parametrize("change", ["count", "order", "data", "nonce"])
def test_a_changed_log_is_found(tmp_path, two_months, change):
    live, private = tmp_path / "clinic", tmp_path / "private"
    append(AppendSettings(live=live, data=two_months))
    data = write_data(tmp_path / "new", [("n1", "失眠应该挂哪个科", ""), ("n2", "孩子咳嗽怎么处理", "")])
    commit(CommitSettings(live=live, data=data, out=private, slice="2026-12"))
    reveal(RevealSettings(live=live, private=private))
    log = json.loads((live / SLICES).read_text())
    entries = log["log"]
    if change == "count":
        entries[0]["counts"]["queries"] = 4
    elif change == "order":
        entries[0], entries[1] = entries[1], entries[0]
    elif change == "nonce":
        entries[3]["nonce"] = "1" * 64
    else:
        manifest = json.loads((live / "2026-10" / "manifest.json").read_text())
        (live / "2026-10" / "manifest.json").write_text(json.dumps({**manifest, "version": "2"}))
    (live / SLICES).write_text(json.dumps(log))
    with pytest.raises(MarError, match="entry"):
        read_live(live)


def test_a_live_edition_stands_for_its_slices(tmp_path, two_months, medteb):
    live = tmp_path / "clinic"
    append(AppendSettings(live=live, data=two_months))
    assert data_folders([two_months, live]) == [two_months, live / "2026-10", live / "2026-11"]
    assert data_folders([live], since="2026-11") == [live / "2026-11"]
    assert data_folders([live], until="2026-10") == [live / "2026-10"]
    with pytest.raises(MarError, match="no slice"):
        data_folders([live], since="2027-01")
    with pytest.raises(MarError, match="live edition"):
        data_folders([two_months], since="2026-10")
    options = ("-m", "bm25-char-bigram", "--output-folder", tmp_path / "results", "--json", "-q")
    code, out, err = medteb("run", "--data", live, "--until", "2026-10", *options)
    assert (code, json.loads(out)["tasks"]) == (0, ["clinic-2026-10"]), err
    code, out, _ = medteb("run", "--data", live, *options)
    (row,) = json.loads(out)["rows"]
    digests = {task: score["dataset_revision"] for task, score in row["scores"].items()}
    assert digests == {f"clinic-{month}": one.digest for month, one in read_live(live).slices.items()}
