"""The three packaged tasks: metadata, prompts, data from editions, main scores."""

from __future__ import annotations

import json

import mteb
import numpy as np
import pytest
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType

from medteb_mteb.editions import EditionError, find_edition, write_manifest
from medteb_mteb.tasks._edition_task import licence_for_mteb

NAMES = ["MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"]
RETRIEVAL = "Given a Chinese medical question, retrieve medical documents that answer the question."
RERANKING = (
    "Based on a Chinese medical question, evaluate and rank the medical information that provide answers to "
    "the question."
)
STS = "Retrieve semantically similar text."


class Recorder(AbsEncoder):
    """Random vectors that depend on the text; remembers which instruction each text came with."""

    def __init__(self) -> None:
        self.seen: list[tuple[PromptType | None, str, list[str]]] = []
        self.mteb_model_meta = ModelMeta.create_empty({"name": "test/recorder", "revision": "1"})

    def encode(self, inputs, *, task_metadata, prompt_type=None, **kwargs):
        texts = [text for batch in inputs for text in batch["text"]]
        self.seen.append((prompt_type, self.get_task_instruction(task_metadata, prompt_type), texts))
        seeds = [abs(hash(("salt", text))) % 2**32 for text in texts]
        return np.stack([np.random.default_rng(seed).standard_normal(8) for seed in seeds]).astype(np.float32)


def evaluate(task, model, **kwargs):
    return mteb.evaluate(model, task, cache=None, show_progress_bar=False, **kwargs).task_results[0]


@pytest.mark.parametrize("name", NAMES)
def test_metadata_is_complete_and_follows_the_edition(name, data_root):
    task = mteb.get_task(name)
    metadata = task.metadata
    assert metadata.is_filled()
    assert metadata.revision == find_edition(name).digest
    assert metadata.dataset["path"] == f"medteb/{name}"
    assert metadata.license == "cc-by-4.0"
    assert metadata.annotations_creators == "algorithmic"
    assert "synthetic" in metadata.description
    assert "not for ranking models" in metadata.description
    assert "2604.10937" in metadata.bibtex_citation
    assert "20011" in metadata.bibtex_citation
    assert metadata.intext_citation() == r"\cite{jiang2026benchmarking}"
    assert metadata.bcp47_codes == ["cmn-Hans"]


def test_metadata_of_a_users_edition_come_from_its_manifest(data_root):
    folder = data_root / "MedTEBSTS"
    write_manifest(folder, task="MedTEBSTS", name="clinic", version="3", licence="Own terms", counts={})
    metadata = mteb.get_task("MedTEBSTS").metadata
    assert "synthetic" not in metadata.description
    assert "`clinic` 3" in metadata.description
    assert "Own terms" in metadata.description
    assert metadata.license == "not specified"
    assert (metadata.annotations_creators, metadata.sample_creation, metadata.date) == (None, None, None)

    said = {"annotations_creators": "expert-annotated", "sample_creation": "found"}
    write_manifest(folder, task="MedTEBSTS", name="clinic", version="3", licence="MIT", counts={}, **said)
    metadata = mteb.get_task("MedTEBSTS").metadata
    assert (metadata.annotations_creators, metadata.sample_creation) == ("expert-annotated", "found")
    assert metadata.license == "mit"


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("CC-BY-SA-4.0", "cc-by-sa-4.0"),
        ("https://example.org/terms", "https://example.org/terms"),
        ("ask me", "not specified"),
    ],
)
def test_licences_are_written_as_mteb_expects(licence, expected):
    assert licence_for_mteb(licence) == expected


def test_instructions_reach_the_model_by_role(data_root):
    for name, expected in {
        "MedTEBRetrieval": {PromptType.query: RETRIEVAL, PromptType.document: ""},
        "MedTEBReranking": {PromptType.query: RERANKING, PromptType.document: ""},
        "MedTEBSTS": {None: STS},
    }.items():
        model = Recorder()
        with pytest.warns(UserWarning, match="document") if "" in expected.values() else _nothing():
            evaluate(mteb.get_task(name), model)
        assert {role: instruction for role, instruction, _ in model.seen} == expected, name
        assert len(model.seen) == 2  # both sides, each once


class _nothing:  # noqa: N801
    def __enter__(self): ...
    def __exit__(self, *error): ...


def test_the_result_carries_the_digest_and_the_main_score(data_root):
    model = mteb.get_model("bm25-char-bigram")
    for name, main in zip(NAMES, ["ndcg_at_10", "map_at_1000", "cosine_pearson"], strict=True):
        result = evaluate(mteb.get_task(name), model)
        scores = result.scores["test"][0]
        assert result.dataset_revision == find_edition(name).digest
        assert scores["main_score"] == scores[main]


def test_reranking_is_map_over_the_whole_list(tmp_path, monkeypatch):
    import pytrec_eval

    # 100 candidates, as published; the positives of the run are spread over the list
    root, rng = tmp_path / "data", np.random.default_rng(0)
    folder = root / "MedTEBReranking"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{i}", "title": "", "text": f"文档{i}"} for i in range(150)]
    lists = {f"q{i}": [f"d{j}" for j in rng.permutation(150)[:100]] for i in range(5)}
    positives = {query: [*rng.permutation(documents)[:7]] for query, documents in lists.items()}
    for name, rows in {
        "corpus": corpus,
        "queries": [{"_id": query, "text": f"问题{query}"} for query in lists],
        "top_ranked": [{"query-id": query, "corpus-ids": documents} for query, documents in lists.items()],
    }.items():
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    judged = [f"{query}\t{document}\t1" for query, documents in positives.items() for document in documents]
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    write_manifest(folder, task="MedTEBReranking", name="mini", version="1", licence="mit", counts={})
    monkeypatch.setenv("MEDTEB_DATA", str(root))

    result = evaluate(mteb.get_task("MedTEBReranking"), Recorder(), prediction_folder=tmp_path / "runs")
    runs = json.loads((tmp_path / "runs/MedTEBReranking_predictions.json").read_text())["default"]["test"]
    assert {len(run) for run in runs.values()} == {100}
    qrels = {query: dict.fromkeys(map(str, documents), 1) for query, documents in positives.items()}
    by_query = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(runs)
    whole = np.mean([scores["map"] for scores in by_query.values()])
    assert result.get_score() == pytest.approx(whole, abs=1e-5)
    assert result.scores["test"][0]["map_at_10"] < whole - 0.001


def test_candidate_lists_that_the_score_does_not_cover_are_refused(data_root, monkeypatch):
    monkeypatch.setattr("medteb_mteb.tasks.reranking.MAX_CANDIDATES", 5)
    with pytest.raises(EditionError, match=r"at most 5 documents .*found a list of 6"):
        mteb.get_task("MedTEBReranking").load_data()


def test_sts_is_the_pearson_of_the_cosine(data_root):
    model = Recorder()
    result = evaluate(mteb.get_task("MedTEBSTS"), model)
    texts1, texts2 = model.seen[0][2], model.seen[1][2]
    rows = [json.loads(line) for line in (data_root / "MedTEBSTS/test.jsonl").read_text().splitlines()]
    assert texts1 == [row["sentence1"] for row in rows]

    def vectors(texts):
        return np.stack(
            [np.random.default_rng(abs(hash(("salt", t))) % 2**32).standard_normal(8) for t in texts]
        )

    a, b = vectors(texts1), vectors(texts2)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    expected = np.corrcoef(cosines, [row["score"] for row in rows])[0, 1]
    assert result.get_score() == pytest.approx(expected, abs=1e-4)


def test_the_edition_is_resolved_when_the_task_is_made(data_root, edition, tmp_path, monkeypatch):
    first = mteb.get_task("MedTEBRetrieval")
    other = tmp_path / "other"
    edition(other, "MedTEBRetrieval", version="9")
    monkeypatch.setenv("MEDTEB_DATA", str(other))
    second = mteb.get_task("MedTEBRetrieval")
    assert first.metadata.revision != second.metadata.revision
    assert first.edition.path == data_root / "MedTEBRetrieval"
    first.load_data()  # from the edition it was made with
    assert len(first.dataset["default"]["test"]["corpus"]) == 6


@pytest.mark.parametrize("name", NAMES)
def test_an_altered_file_is_refused_by_name(name, data_root):
    task = mteb.get_task(name)
    changed = data_root / name / ("test.jsonl" if name == "MedTEBSTS" else "corpus.jsonl")
    content = changed.read_bytes()
    changed.write_bytes(content.replace("烧".encode(), "热".encode()).replace("药".encode(), "水".encode()))
    assert changed.read_bytes() != content
    with pytest.raises(EditionError, match=changed.name):
        task.load_data()
    assert not task.data_loaded


def test_an_edition_that_cannot_be_resolved_is_reported_on_use_only(data_root):
    (data_root / "MedTEBSTS/manifest.json").write_text("{")
    task = mteb.get_task("MedTEBSTS")
    assert task.metadata.revision == "no-edition"
    listed = mteb.get_tasks(languages=["cmn"], domains=["Medical"])  # constructs every task it lists
    assert "MedTEBSTS" in {task.metadata.name for task in listed}
    with pytest.raises(EditionError, match=r"manifest\.json"):
        task.load_data()


def test_loading_twice_reads_once(data_root):
    task = mteb.get_task("MedTEBRetrieval")
    task.load_data()
    (data_root / "MedTEBRetrieval/corpus.jsonl").unlink()
    task.load_data()
    revision = task.metadata.revision
    task.unload_data()
    assert task.metadata.revision == revision  # mteb's own unload_data drops an instance's metadata
    with pytest.raises(EditionError, match="missing"):
        task.load_data()
