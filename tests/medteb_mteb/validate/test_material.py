from __future__ import annotations

import os

import pytest

from medteb_mteb.folders import FolderError
from medteb_mteb.validate import Sources, read_material
from medteb_mteb.validate import material as module


def test_the_baseline_ranks_as_the_model_of_that_name(folder, tmp_path):
    import mteb

    from medteb_mteb.folders import task_from_folder

    task = task_from_folder(folder)
    result = mteb.evaluate(
        mteb.get_model("bm25-char-bigram"), task, cache=None, co2_tracker=False, show_progress_bar=False
    )
    (scores,) = result.task_results[0].scores["test"]
    by_query = read_material(folder, Sources()).scores["bm25-char-bigram"]
    assert sum(one.ndcg for one in by_query.values()) / len(by_query) == pytest.approx(
        scores["ndcg_at_10"], abs=1e-5
    )


@pytest.mark.parametrize("name", ["corpus.jsonl", "README.md", "judged_negatives.tsv", "manifest.json"])
def test_links_out_of_the_folder_are_refused(folder, tmp_path, name):
    target = tmp_path / "elsewhere"
    target.write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    with pytest.raises(FolderError, match="symbolic link out of the folder"):
        read_material(folder, Sources())


def test_pipes_and_broken_links_are_not_files(folder):
    os.mkfifo(folder / "manifest.json")
    with pytest.raises(FolderError, match=r"manifest\.json is not a regular file"):
        read_material(folder, Sources())


def test_huge_files_are_refused_before_they_are_read(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_TABLE_BYTES", 1000)
    with pytest.raises(FolderError, match=r"corpus\.jsonl has .* bytes; at most 1,000 are read"):
        read_material(folder, Sources())


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, '{"schema_version": 1, "task": 3}'])
def test_an_unexpected_manifest_is_one_clear_error(folder, content):
    (folder / "manifest.json").write_text(content)
    with pytest.raises(FolderError, match=r"manifest\.json"):
        read_material(folder, Sources())


def test_other_types_and_empty_folders_are_refused(make_folder, folder, tmp_path):
    with pytest.raises(FolderError, match="looks at retrieval and reranking folders"):
        read_material(make_folder("STS"), Sources())
    with pytest.raises(FolderError, match="no such folder"):
        read_material(tmp_path / "gone", Sources())
    (folder / "corpus.jsonl").write_text("not json\n")
    with pytest.raises(FolderError, match="malformed JSON"):
        read_material(folder, Sources())


def test_reranking_folders_are_ranked_within_their_lists(make_folder):
    material = read_material(make_folder("Reranking"), Sources())
    assert material.kind == "Reranking"
    assert all(len(ranking) == 6 for ranking in material.runs["bm25-char-bigram"].values())
