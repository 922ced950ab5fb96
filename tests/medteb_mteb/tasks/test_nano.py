from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import mteb
import pytest
from mteb.models import CrossEncoderProtocol
from tests.medteb_mteb.nano.sets import tables, write_set, write_split

from medteb_mteb.folders import FolderError
from medteb_mteb.nano import layout
from medteb_mteb.nano.layout import read_split
from medteb_mteb.nano.measures import score_rankings
from medteb_mteb.nano.rankings import SUFFIX, read_rankings
from medteb_mteb.nano.table import BM25, DENSE, HYBRID, published_sets
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.nano import NANO_TASKS, nano_names, nano_tasks_from_folder
from medteb_mteb.tasks.of_folders import tasks_from_folders

SUFFIXES = ("Retrieval", "Reranking", "RerankingNoSafeguard", "BM25Reranking", "DenseReranking")


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Local copies of both published sets, with tiny content."""
    for name, nano in published_sets().items():
        write_set(tmp_path / "data" / name, list(nano.splits), documents=12)
    write_split(tmp_path / "data" / "NanoCMTEB", "medical")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


class Scripted:
    """A reranker that scores by the document's number, and notes what it was asked."""

    def __init__(self) -> None:
        self.mteb_model_meta = mteb.get_model_meta("bm25-char-bigram").model_copy(
            update={"name": "x/scripted"}
        )
        self.asked: list[tuple[str, str]] = []

    def predict(self, inputs1, inputs2, **kwargs):
        queries = [text for batch in inputs1 for text in batch["text"]]
        documents = [text for batch in inputs2 for text in batch["text"]]
        self.asked += zip(queries, documents, strict=True)
        return [float(text.partition("第")[2].partition("条")[0]) for text in documents]


def test_every_split_has_a_retrieval_task_and_four_reranking_tasks():
    names = [task.metadata.name for task in NANO_TASKS]
    assert len(names) == len(set(names)) == 18 * 5
    for name, number in (("NanoCMTEB", 8), ("NanoMedical", 10)):
        for suffix in SUFFIXES:
            assert len(nano_names(name, suffix)) == number
            assert set(nano_names(name, suffix)) <= set(names)
    assert "NanoCMTEBMedicalRetrieval" in names
    assert "NanoMedicalCUREv1RerankingNoSafeguard" in names


@pytest.mark.parametrize("cls", NANO_TASKS, ids=lambda cls: cls.metadata.name)
def test_metadata_are_filled_and_agree_with_the_source_task(cls):
    metadata = cls.metadata
    assert mteb.get_task(metadata.name).metadata.name == metadata.name
    assert metadata.is_filled()
    assert metadata.main_score == "ndcg_at_10"
    assert metadata.type == ("Retrieval" if metadata.name.endswith("Retrieval") else "Reranking")
    assert metadata.dataset == {"path": f"hakari-bench/{cls.set_name}", "revision": "main"}
    assert "is not pinned" in metadata.description
    split = published_sets()[cls.set_name].splits[cls.split]
    if split.source_revision:
        assert f"{split.source} at {split.source_revision}" in metadata.description
    source = mteb.get_task(split.task).metadata
    assert (metadata.license, metadata.adapted_from) == (source.license, [split.task])


def test_a_model_trained_on_the_source_is_not_zero_shot():
    meta = mteb.get_model_meta("bm25-char-bigram").model_copy(
        update={"training_datasets": {"MedicalRetrieval"}}
    )
    tasks = mteb.get_tasks(tasks=["NanoCMTEBMedicalRetrieval", "NanoCMTEBVideoRetrieval"])
    assert meta.is_zero_shot_on(tasks) is False
    assert meta.is_zero_shot_on(tasks[1:]) is True


def test_benchmarks_have_the_tasks_of_all_splits():
    for name, number in (("NanoCMTEB", 8), ("NanoMedical", 10)):
        benchmark = mteb.get_benchmark(name)
        assert [task.metadata.name for task in benchmark.tasks] == nano_names(name)
        assert len(benchmark.tasks) == number
        reranking = mteb.get_benchmark(f"{name}(reranking)")
        assert [task.metadata.name for task in reranking.tasks] == nano_names(name, "Reranking")


OTHERS = ("NanoCMTEB(reranking)", "NanoMedical", "NanoMedical(reranking)")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NanoCMTEB", *OTHERS])
def test_a_benchmark_runs_end_to_end_and_its_rankings_score_the_same(
    copies, tmp_path, encoder_folder, medteb, name
):
    results = tmp_path / "results"
    args = [
        "run",
        "-b",
        name,
        "-m",
        "mar-mini",
        "-m",
        encoder_folder,
        "--output-folder",
        results,
        "--json",
        "-q",
    ]
    code, out, _ = medteb(*args)
    assert code == 0, out
    assert json.loads(out)["errors"] == []
    number = len(mteb.get_benchmark(name).tasks)
    kept = [read_rankings(path) for path in sorted((results / "rankings").rglob(f"*{SUFFIX}"))]
    assert list(Counter(one.model for one in kept).values()) == [number, number]
    code, out, _ = medteb("nano", "score", results / "rankings", "--json")
    again = {(row["task"], row["model"]): row for row in json.loads(out)}
    for one in kept:
        model = one.model.replace("/", "__")
        (path,) = (results / "results").glob(f"{model}/*/{one.task}.json")
        saved = json.loads(path.read_text())
        assert saved["dataset_revision"] == one.dataset_revision
        ((scores,),) = saved["scores"].values()
        row = again[one.task, one.model]
        for measure in asdict(one.scores()):
            assert scores[measure] == pytest.approx(row[measure], abs=1e-5)  # mteb rounds some
        assert scores["main_score"] == pytest.approx(row["ndcg_at_10"], abs=1e-5)
    # nothing is evaluated again
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*") if path.is_file()}
    assert medteb(*args)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.thorough(but=["Reranking-reranking_hybrid-101"])
@pytest.mark.parametrize(
    ("suffix", "name", "size"),
    [
        ("Reranking", HYBRID, 101),
        ("RerankingNoSafeguard", HYBRID, 100),
        ("BM25Reranking", BM25, 119),
        ("DenseReranking", DENSE, 119),
    ],
)
def test_a_reranker_gets_the_candidates_in_a_neutral_order(copies, suffix, name, size):
    model = Scripted()
    assert isinstance(model, CrossEncoderProtocol)
    task = mteb.get_task(f"NanoCMTEBMedical{suffix}")
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False)
    data = read_split(copies / "NanoCMTEB", "medical")
    third = [document for query, document in model.asked if query == data.queries["q2"]]
    texts = [data.corpus[document] for document in data.lists[name]["q2"][:size]]
    assert sorted(third) == sorted(texts)
    assert third != texts
    scores = result.task_results[0].scores["medical"][0]
    # the scripted model puts the highest number first: the safeguard, where it is there
    assert scores["hit_at_1"] == pytest.approx((size == 101) / 3)
    assert scores["hit_rate_at_1"] == pytest.approx((size == 101) / 3, abs=1e-5)
    ranked = {q: sorted(row[:size], key=lambda d: -int(d[1:])) for q, row in data.lists[name].items()}
    expected = asdict(score_rankings(ranked, data.qrels))
    assert {key: scores[key] for key in expected} == pytest.approx(expected, abs=1e-5)


@pytest.mark.thorough
def test_micro_and_macro_recall_differ_where_queries_have_several_positives(copies):
    task = mteb.get_task("NanoCMTEBMedicalRerankingNoSafeguard")
    result = mteb.evaluate(Scripted(), task, cache=None, show_progress_bar=False, co2_tracker=False)
    scores = result.task_results[0].scores["medical"][0]
    assert scores["recall_micro_at_100"] == pytest.approx(3 / 4)
    assert scores["recall_macro_at_100"] == pytest.approx(2 / 3)
    assert scores["recall_at_100"] == pytest.approx(2 / 3, abs=1e-5)


def test_a_local_copy_has_a_revision_of_its_own_and_may_not_change(copies):
    task = mteb.get_task("NanoCMTEBMedicalRetrieval")
    assert task.metadata.revision == layout.revision_of(copies / "NanoCMTEB", "medical") != "main"
    content = tables()
    content["queries"]["text"][0] = "感冒能洗澡吗"
    write_split(copies / "NanoCMTEB", "medical", content)
    with pytest.raises(FolderError, match="changed after the task was created"):
        task.load_data()
    task = mteb.get_task("NanoCMTEBMedicalRetrieval")
    task.load_data()
    revision = task.metadata.revision
    task.unload_data()
    assert task.metadata.revision == revision


def test_a_copy_that_lacks_a_split_is_reported_on_use(copies):
    (copies / "NanoCMTEB" / "qrels" / "medical.parquet").unlink()
    task = mteb.get_task("NanoCMTEBMedicalRetrieval")
    with pytest.raises(FolderError, match=r"qrels/medical\.parquet"):
        task.load_data()


def test_without_a_copy_the_hub_is_asked_for_the_unpinned_set(monkeypatch, tmp_path):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    asked = []

    def hub(name, config, *, split, revision):
        asked.append((name, config, split, revision))
        raise ConnectionError("Couldn't reach the Hub\nsecond line")

    monkeypatch.setattr("datasets.load_dataset", hub)
    task = mteb.get_task("NanoMedicalNFCorpusReranking")
    with pytest.raises(
        DataUnavailableError, match=r"hf download --repo-type dataset hakari-bench/NanoMedical"
    ):
        task.load_data()
    assert asked == [("hakari-bench/NanoMedical", "corpus", "NanoNFCorpus", "main")]


@pytest.mark.thorough
def test_the_hub_gives_the_same_data_as_a_folder(monkeypatch, copies, datasets_cache):
    from datasets import load_dataset

    folder = copies / "NanoCMTEB"
    local = mteb.get_task("NanoCMTEBMedicalReranking")
    local.load_data()
    monkeypatch.delenv("MEDTEB_DATA")
    monkeypatch.setattr(
        "datasets.load_dataset", lambda name, config, **options: load_dataset(str(folder), config, **options)
    )
    remote = mteb.get_task("NanoCMTEBMedicalReranking")
    remote.load_data()
    ours, theirs = local.dataset["default"]["medical"], remote.dataset["default"]["medical"]
    assert list(ours["corpus"]) == list(theirs["corpus"])
    assert list(ours["queries"]) == list(theirs["queries"])
    assert (ours["relevant_docs"], ours["top_ranked"]) == (theirs["relevant_docs"], theirs["top_ranked"])


@pytest.mark.thorough
def test_statistics_are_computed_beside_the_copy(copies):
    task = mteb.get_task("NanoCMTEBMedicalReranking")
    statistics = task.calculate_descriptive_statistics()["medical"]
    assert (statistics["num_queries"], statistics["num_documents"]) == (3, 120)
    assert statistics["top_ranked_statistics"]["num_top_ranked"] == 301
    assert task.metadata.descriptive_stat_path.is_relative_to(copies / "NanoCMTEB")


def test_a_users_own_set_runs_like_a_data_folder(tmp_path, medteb):
    content = tables()
    content["my_model"] = content.pop(DENSE)
    folder = write_split(tmp_path / "NanoOwn", "heart", content)
    tasks = tasks_from_folders([folder])
    assert [task.metadata.name for task in tasks] == [
        "NanoOwn-heart-Retrieval",
        "NanoOwn-heart-Reranking",
        "NanoOwn-heart-RerankingNoSafeguard",
        "NanoOwn-heart-BM25Reranking",
        "NanoOwn-heart-my_model-Reranking",
    ]
    code, out, _ = medteb(
        "run", "--data", folder, "-m", "bm25-char-bigram", "--output-folder", tmp_path / "r", "--json"
    )
    assert code == 0
    assert len(json.loads(out)["tasks"]) == 5
    with pytest.raises(FolderError, match="expected a Nano set"):
        nano_tasks_from_folder(tmp_path)


def test_each_split_of_a_folder_has_the_tasks_of_its_own_lists(tmp_path):
    write_split(tmp_path / "NanoOwn", "heart")
    folder = write_split(tmp_path / "NanoOwn", "lung", {k: v for k, v in tables().items() if k != HYBRID})
    names = [task.metadata.name.removeprefix("NanoOwn-") for task in nano_tasks_from_folder(folder)]
    assert [name for name in names if name.startswith("lung")] == [
        "lung-Retrieval",
        "lung-BM25Reranking",
        f"lung-{DENSE}-Reranking",
    ]
    assert len(names) == 3 + 5
