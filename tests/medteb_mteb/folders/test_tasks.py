from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy

from medteb_mteb.editions import write_manifest
from medteb_mteb.folders import FolderError, load_into, read_folder, task_from_folder

MAIN_SCORES = {
    "Retrieval": "ndcg_at_10",
    "Reranking": "map_at_1000",
    "STS": "cosine_spearman",
    "PairClassification": "max_ap",
    "Classification": "accuracy",
    "Clustering": "v_measure",
}

# A header like this makes `datasets` find its cache by the folder's base name.
CARD = """---
language: zh
configs:
- config_name: corpus
  data_files: [{split: test, path: corpus.jsonl}]
- config_name: queries
  data_files: [{split: test, path: queries.jsonl}]
- config_name: default
  data_files: [{split: test, path: qrels/test.tsv}]
---
"""


def texts(task):
    task.load_data()
    return list(task.dataset["default"]["test"]["corpus"]["text"])


def replace_text(folder, old, new):
    path = folder / "corpus.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("kind", list(MAIN_SCORES))
def test_class_is_constructible_and_loads_the_folder(make_folder, kind):
    task = task_from_folder(make_folder(kind))
    again = type(task)()
    again.load_data()
    assert again.metadata.type == kind
    assert again.metadata.main_score == MAIN_SCORES[kind]
    assert again.metadata.revision == read_folder(task.folder).revision
    assert again.data_loaded
    assert not task.data_loaded


def test_published_instructions_are_the_default_prompts(make_folder):
    prompts = {
        kind: task_from_folder(make_folder(kind)).metadata.prompt
        for kind in ("Retrieval", "Reranking", "STS")
    }
    assert prompts == {
        "Retrieval": {
            "query": "Given a Chinese medical question, retrieve medical documents that answer the question."
        },
        "Reranking": {
            "query": "Based on a Chinese medical question, evaluate and rank the medical information that "
            "provide answers to the question."
        },
        "STS": "Retrieve semantically similar text.",
    }


def test_card_settings_reach_the_metadata(make_folder):
    folder = make_folder("STS")
    header = {
        "language": ["zh", "en"],
        "license": "CC-BY-4.0",
        "medteb": {
            "name": "Mine",
            "main_score": "cosine_pearson",
            "prompt": "比较两句",
            "domains": ["Medical"],
        },
    }
    (folder / "README.md").write_text(f"---\n{json.dumps(header)}\n---\n")
    metadata = task_from_folder(folder).metadata
    assert (metadata.name, metadata.main_score, metadata.prompt) == ("Mine", "cosine_pearson", "比较两句")
    assert metadata.eval_langs == ["cmn-Hans", "eng-Latn"]
    assert (metadata.license, metadata.domains) == ("cc-by-4.0", ["Medical"])


def test_unknown_language_is_stated_as_such(make_folder):
    metadata = task_from_folder(make_folder("STS")).metadata
    assert metadata.eval_langs == ["und-Zyyy"]
    assert metadata.license == "not specified"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"main_score": "ndcg_at_10"}, "not a score of STS"),
        ({"domains": ["Medicine"]}, "unknown domains"),
        ({"languages": ["chinese"]}, "unknown language 'chinese'"),
        ({"name": "a/b"}, "cannot be a task name"),
    ],
)
def test_settings_that_mteb_cannot_take_are_refused(make_folder, settings, expected):
    folder = make_folder("STS")
    (folder / "README.md").write_text(f"---\nmedteb: {json.dumps(settings)}\n---\n")
    with pytest.raises(FolderError, match=expected):
        task_from_folder(folder)


def test_a_folder_rebuilt_in_place_gives_the_new_data(make_folder):
    folder = make_folder("Retrieval", "same")
    (folder / "README.md").write_text(CARD)
    first = task_from_folder(folder)
    assert texts(first)[4].startswith("骨折后应制动")
    replace_text(folder, "骨折后应制动", "扭伤后应冷敷")
    second = task_from_folder(folder)
    assert texts(second)[4].startswith("扭伤后应冷敷")
    assert first.metadata.revision != second.metadata.revision


def test_two_folders_of_one_base_name_do_not_mix(make_folder):
    one, two = make_folder("Retrieval", "a/same"), make_folder("Retrieval", "b/same")
    for folder in (one, two):
        (folder / "README.md").write_text(CARD)
    replace_text(two, "骨折后应制动", "扭伤后应冷敷")
    assert texts(task_from_folder(one))[4].startswith("骨折后应制动")
    assert texts(task_from_folder(two))[4].startswith("扭伤后应冷敷")


def test_nothing_is_cached_on_disk(make_folder):
    for kind in MAIN_SCORES:
        task_from_folder(make_folder(kind)).load_data()
    cache = Path(os.environ["HF_DATASETS_CACHE"])
    assert not cache.exists() or not any(path.is_file() for path in cache.rglob("*"))


def test_data_that_changes_between_making_and_loading_is_refused(make_folder):
    folder = make_folder("Retrieval")
    task = task_from_folder(folder)
    replace_text(folder, "骨折", "扭伤")
    with pytest.raises(FolderError, match="changed since"):
        task.load_data()


def test_revision_is_the_digest_where_there_is_a_manifest(make_folder):
    folder = make_folder("Clustering")
    edition = write_manifest(folder, task="Named", name="e", version="1", licence="mit", counts={"test": 6})
    task = task_from_folder(folder)
    assert (task.metadata.name, task.metadata.revision) == ("Named", edition.digest)


def test_load_into_names_columns_as_the_task_does_and_refuses_other_types(make_folder):
    from mteb.abstasks import AbsTaskPairClassification

    pairs = make_folder("PairClassification")
    task = task_from_folder(pairs)
    assert AbsTaskPairClassification.label_column_name == "labels"
    load_into(task, pairs)
    assert task.dataset["test"].column_names == ["sentence1", "sentence2", "labels"]
    with pytest.raises(FolderError, match="is of type STS, but"):
        load_into(task, read_folder(make_folder("STS")))


def test_lists_per_row_use_the_task_for_sets_of_clusters(make_folder):
    folder = make_folder("Clustering")
    rows = [json.loads(line) for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    nested = {key: [row[key] for row in rows] for key in ("sentences", "labels")}
    (folder / "test.jsonl").write_text(json.dumps(nested), encoding="utf-8")
    task = task_from_folder(folder)
    task.load_data()
    assert isinstance(task, AbsTaskClusteringLegacy)
    assert len(task.dataset["test"][0]["sentences"]) == 6


def test_clustering_uses_every_row(make_folder):
    # mteb's default would embed 4 % of them, here none.
    assert task_from_folder(make_folder("Clustering")).max_fraction_of_documents_to_embed is None
