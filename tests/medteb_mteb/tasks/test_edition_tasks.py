"""The three packaged tasks: metadata, prompts, data from editions, main scores."""

from __future__ import annotations

import mteb
import pytest
from mteb.types import PromptType
from tests.medteb_mteb.tasks.recorder import Recorder, evaluate

from medteb_mteb.editions import EditionError, find_edition, write_manifest
from medteb_mteb.tasks._edition_task import licence_for_mteb

NAMES = ["MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"]
RETRIEVAL = "Given a Chinese medical question, retrieve medical documents that answer the question."
RERANKING = (
    "Based on a Chinese medical question, evaluate and rank the medical information that provide answers to "
    "the question."
)
STS = "Retrieve semantically similar text."


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
