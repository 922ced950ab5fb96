from __future__ import annotations

import json
import shutil
from pathlib import Path

import mteb
import pytest
from tests.conftest import DOCUMENTS, QRELS, QUERIES, write_retrieval
from tests.medteb_mteb.tasks.published_layouts import write_published, write_pushed

from medteb_mteb.folders import FolderError
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.cmirb import CMIRB_TASKS, cmirb_scores, cmirb_sets

SETS = cmirb_sets()
RERANKING = ("CMedQAv1-reranking", "CMedQAv2-reranking")
RETRIEVAL = ("CmedqaRetrieval", "MedicalRetrieval", "CovidRetrieval")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "chinese.md"
#: nDCG@10 of published scores: other versions of models, libraries and hardware.
TOLERANCE = 0.01


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Local copies of all fifteen tasks in their published layouts."""
    for one in SETS:
        write_published(tmp_path / "data" / one.task)
    for name in RERANKING:
        write_pushed(tmp_path / "data" / name, "test", reranking=True)
    for name in RETRIEVAL:
        write_pushed(tmp_path / "data" / name, "dev", reranking=False)
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_benchmarks_hold_mtebs_five_tasks_and_the_ten_sets():
    ten = [one.task for one in SETS]
    assert len(ten) == 10
    assert [t.metadata.name for t in mteb.get_benchmark("CMIRB").tasks] == ten
    public = [t.metadata.name for t in mteb.get_benchmark("Medical(cmn, public)").tasks]
    assert public == [*RERANKING, *RETRIEVAL, *ten]


@pytest.mark.parametrize("cls", CMIRB_TASKS, ids=lambda cls: cls.metadata.name)
def test_metadata_are_filled_and_agree_with_mtebs_task_on_the_same_data(cls):
    metadata, one = cls.metadata, cls.published
    assert mteb.get_task(metadata.name).metadata.name == metadata.name
    assert metadata.is_filled()
    assert (metadata.type, metadata.main_score, metadata.eval_splits) == ("Retrieval", "ndcg_at_10", ["test"])
    assert metadata.dataset == {"path": one.hub, "revision": one.revision or "main"}
    assert ("is not pinned" in metadata.description) == (one.revision is None)
    if one.adapted_from:  # the prompt of mteb's task on the same data
        assert metadata.prompt == mteb.get_task(one.adapted_from).metadata.prompt
        theirs = mteb.get_task(one.adapted_from).metadata.descriptive_stats["dev"]
        assert (theirs["num_queries"], theirs["num_documents"]) == (one.queries, one.documents)


def test_published_means_are_the_means_of_the_published_scores():
    assert len(cmirb_scores()) == 10
    for row in cmirb_scores():
        assert len(row.ndcg_at_10) == 10
        assert sum(row.ndcg_at_10) / 10 == pytest.approx(row.average, abs=0.0051), row.model


def test_published_scores_of_one_set_agree_with_each_other():
    """bge-large-zh-v1.5 on MedExam, from the repository's result file: one positive for each query."""
    recall_at_1, recall_at_10, precision_at_10, ndcg_at_10 = 0.36442, 0.82496, 0.0825, 0.5861
    row = next(row for row in cmirb_scores() if row.model == "bge-large-zh-v1.5")
    assert row.ndcg_at_10[0] == round(100 * ndcg_at_10, 2)
    assert precision_at_10 * 10 == pytest.approx(recall_at_10, abs=1e-4)
    for recall in (recall_at_1, recall_at_10):
        hits = recall * SETS[0].queries
        assert hits == pytest.approx(round(hits), abs=SETS[0].queries * 1e-5)


def test_a_copy_in_the_published_layout_is_read(copies):
    task = mteb.get_task("MedExamRetrieval")
    assert task.metadata.revision != "main"
    task.load_data()
    data = task.dataset["default"]["test"]
    assert data["relevant_docs"] == QRELS
    assert {row["id"]: row["text"] for row in data["corpus"]} == DOCUMENTS
    assert {row["id"]: row["text"] for row in data["queries"]} == QUERIES


def test_an_unknown_document_of_a_copy_is_named(copies):
    path = copies / "DuBaikeRetrieval" / "qrels" / "test.jsonl"
    path.write_text('{"q_id": "q1", "p_id": "d99", "score": 1}\n', encoding="utf-8")
    with pytest.raises(FolderError, match="corpus-id 'd99' is not in the corpus"):
        mteb.get_task("DuBaikeRetrieval").load_data()


@pytest.mark.thorough
@pytest.mark.parametrize("split", ["test", "dev"])
def test_the_hub_gives_the_same_data_as_a_copy(copies, monkeypatch, datasets_cache, split):
    """The loader for the Hub, on a folder of the same layout; the authors' code names one split `dev`."""
    name = "CMIRBCovidRetrieval"
    card = copies / name / "README.md"
    card.write_text(card.read_text("utf-8").replace("split: test", f"split: {split}"), encoding="utf-8")
    local = mteb.get_task(name)
    local.load_data()
    monkeypatch.delenv("MEDTEB_DATA")
    remote = mteb.get_task(name)
    assert remote.metadata.revision == "main"
    monkeypatch.setattr(remote.metadata, "dataset", {"path": str(copies / name), "revision": "main"})
    remote.load_data()
    ours, theirs = local.dataset["default"]["test"], remote.dataset["default"]["test"]
    assert theirs["relevant_docs"] == ours["relevant_docs"]
    for table in ("corpus", "queries"):
        assert [(r["id"], r["text"]) for r in theirs[table]] == [(r["id"], r["text"]) for r in ours[table]]


def test_without_a_network_the_error_names_the_data_set(monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    with pytest.raises(DataUnavailableError, match="hf download --repo-type dataset CMIRB/CSLCiteRetrieval"):
        mteb.get_task("CSLCiteRetrieval").load_data()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_public_benchmark_runs_end_to_end(copies, tmp_path, encoder_folder, medteb):
    args = ("run", "-b", "Medical(cmn, public)", "-m", "mar-mini", "-m", encoder_folder)
    code, out, _ = medteb(*args, "--output-folder", tmp_path / "results", "--json", "-q")
    report = json.loads(out)
    assert (code, report["errors"], report["left_out"]) == (0, [], {})
    assert len(report["tasks"]) == 15
    saved = {p.stem for p in (tmp_path / "results" / "results").rglob("*.json")} - {"model_meta"}
    assert saved == set(report["tasks"])


def test_unavailable_tasks_are_left_out_with_the_reason(copies, tmp_path, medteb):
    for path in copies.iterdir():
        if path.name != "MedExamRetrieval":
            shutil.rmtree(path)
    args = ("run", "-b", "CMIRB", "-m", "bm25-char-bigram", "--output-folder", tmp_path / "r", "--json", "-q")
    code, out, error = medteb(*args)
    report = json.loads(out)
    assert (code, report["tasks"]) == (0, ["MedExamRetrieval"])
    assert set(report["left_out"]) == {one.task for one in SETS[1:]}
    assert "left out: DXYConsultRetrieval: " in error
    assert "hf download --repo-type dataset CMIRB/DXYConsultRetrieval" in error


def test_a_copy_of_mtebs_retrieval_task_is_read(tmp_path, monkeypatch):
    write_retrieval(tmp_path / "MedicalRetrieval")
    (tmp_path / "MedicalRetrieval/qrels/test.tsv").rename(tmp_path / "MedicalRetrieval/qrels/dev.tsv")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    task = mteb.get_task("MedicalRetrieval")
    task.load_data()
    assert task.dataset["default"]["dev"]["relevant_docs"] == QRELS


def test_the_page_shows_the_published_table():
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    for row in cmirb_scores():
        assert [row.model, f"{row.average:.2f}", *(f"{v:.2f}" for v in row.ndcg_at_10)] in lines
    for one in SETS:
        cells = next(line for line in lines if line[0] == f"`{one.task}`")
        revision = f"`{one.revision[:8]}`" if one.revision else "unpinned"
        assert cells[1:4] == [f"`{one.hub}`", revision, f"{one.queries:,} / {one.documents:,}"]


@pytest.mark.network
@pytest.mark.parametrize("one", SETS, ids=lambda one: one.task)
def test_data_have_the_published_sizes(one, online):
    task = mteb.get_task(one.task)
    task.load_data()
    data = task.dataset["default"]["test"]
    assert (len(data["queries"]), len(data["corpus"])) == (one.queries, one.documents)


#: Open models that CMIRB's code and mteb run alike: CLS pooling, and no prefix but BGE's, which both have.
#: CMIRB runs the other models that mteb has without their prefixes, or through a paid interface.
COMPARABLE = ("gte-large-zh", "bge-large-zh-v1.5")
KNOWN = [row for row in cmirb_scores() if row.model in COMPARABLE]


def test_models_to_compare_are_open_and_known_to_mteb():
    assert [row.model for row in KNOWN] == list(COMPARABLE)
    for row in KNOWN:
        assert mteb.get_model_meta(row.hub).open_weights


@pytest.mark.network
@pytest.mark.timeout(0)  # sets of up to 100,000 documents
@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.model)
@pytest.mark.parametrize("index", range(10), ids=lambda index: SETS[index].task)
def test_models_get_the_published_scores(row, index, online):
    result = mteb.evaluate(mteb.get_model(row.hub), mteb.get_task(SETS[index].task), cache=None)
    assert result.task_results[0].get_score() == pytest.approx(row.ndcg_at_10[index] / 100, abs=TOLERANCE)
