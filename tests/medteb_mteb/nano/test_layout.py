from __future__ import annotations

import shutil

import pytest
from tests.medteb_mteb.nano.sets import LISTS, tables, write_set, write_split

from medteb_mteb.folders import FolderError
from medteb_mteb.nano.layout import (
    is_nano,
    list_names,
    load_hub,
    read_split,
    revision_of,
    splits_of,
    without_safeguard,
)
from medteb_mteb.nano.table import BM25, DENSE, HYBRID


def test_a_folder_of_the_published_layout_is_read(tmp_path):
    folder = write_set(tmp_path / "Set", ["medical", "t2"])
    assert is_nano(folder)
    assert splits_of(folder) == ["medical", "t2"]
    assert sorted(list_names(folder)) == sorted(LISTS)
    data = read_split(folder, "t2")
    assert (len(data.corpus), len(data.queries)) == (120, 3)
    assert data.qrels == {"q0": ["d0", "d6"], "q1": ["d1"], "q2": ["d119"]}
    assert data.lists[HYBRID]["q2"][-1] == "d119"
    assert len(data.lists[HYBRID]["q2"]) == 101
    assert without_safeguard(data)["q2"] == data.lists[HYBRID]["q2"][:100]
    assert set(read_split(folder, "t2", [BM25]).lists) == {BM25}


def test_files_are_found_without_a_card_and_in_shards(tmp_path):
    folder = write_split(tmp_path / "Set", "medical")
    expected = read_split(folder, "medical")
    (folder / "README.md").unlink()
    for path in list(folder.rglob("*.parquet")):
        path.rename(path.with_name("medical-00000-of-00001.parquet"))  # as push_to_hub names them
    assert splits_of(folder) == ["medical"]
    assert read_split(folder, "medical") == expected


def test_datasets_loads_the_same_from_the_card(tmp_path, datasets_cache):
    folder = write_set(tmp_path / "SetThatDatasetsReads", ["medical", "t2"])
    assert load_hub(str(folder), "t2", "main", LISTS) == read_split(folder, "t2")


def test_each_split_has_its_own_revision(tmp_path):
    folder = write_set(tmp_path / "Set", ["medical", "t2"])
    before = {split: revision_of(folder, split) for split in ("medical", "t2")}
    assert before["medical"] != before["t2"]  # the split's name is part of it
    content = tables()
    content["queries"]["text"][0] = "感冒能洗澡吗"
    write_split(folder, "t2", content)
    assert revision_of(folder, "medical") == before["medical"]
    assert revision_of(folder, "t2") != before["t2"]
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / "Other")
    assert revision_of(moved, "medical") == before["medical"]


def broken(**changes):
    content = tables()
    for name, change in changes.items():
        change(content[name])
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (broken(qrels=lambda t: t["corpus-id"].__setitem__(0, "d999")), "'d999' of query 'q0' is not in the"),
        (broken(qrels=lambda t: t["query-id"].__setitem__(2, "q0")), "query 'q1' has no positive"),
        (broken(qrels=lambda t: t["corpus-id"].__setitem__(1, "d0")), "'q0' has a positive twice"),
        (
            broken(corpus=lambda t: t["_id"].__setitem__(5, "d4")),
            "corpus, row 6: a second text of the id 'd4'",
        ),
        (broken(queries=lambda t: t["text"].__setitem__(1, " ")), "queries, row 2: expected _id and text"),
        (
            broken(**{BM25: lambda t: t["corpus-ids"][0].__setitem__(0, "d1")}),
            "bm25, query 'q0': a candidate is",
        ),
        (broken(**{BM25: lambda t: t["query-id"].__setitem__(0, "q1")}), "one row per query"),
        (
            broken(**{DENSE: lambda t: [column.pop() for column in t.values()]}),
            f"{DENSE}: query 'q2' has no list",
        ),
        (
            broken(**{HYBRID: lambda t: t["corpus-ids"][2].pop()}),
            "none of 100 candidates is positive and there is",
        ),
        (
            broken(**{HYBRID: lambda t: t["corpus-ids"][0].append("d119")}),
            "though a positive is ranked above it",
        ),
        (
            broken(**{HYBRID: lambda t: t["corpus-ids"][2].__setitem__(100, "d118")}),
            "the candidate at rank 101 is not a positive",
        ),
        (broken(**{HYBRID: lambda t: t["corpus-ids"][0].pop()}), "99 candidates; expected 100, or 101"),
    ],
)
def test_an_inconsistent_split_is_refused(tmp_path, content, message):
    folder = write_split(tmp_path / "Set", "medical", content)
    with pytest.raises(FolderError, match="split 'medical'") as raised:
        read_split(folder, "medical")
    assert message in str(raised.value)


def test_a_split_may_have_fewer_documents_than_candidates(tmp_path):
    content = tables()
    for columns in content.values():
        if "corpus-ids" in columns:
            columns["corpus-ids"] = [[f"d{i}" for i in range(20)]] * 3
    content["corpus"] = {key: values[:20] for key, values in content["corpus"].items()}
    content["qrels"]["corpus-id"][-1] = "d19"
    assert len(read_split(write_split(tmp_path / "Set", "s", content), "s").lists[HYBRID]["q0"]) == 20


def test_missing_splits_and_files_are_named(tmp_path):
    folder = write_split(tmp_path / "Set", "medical")
    with pytest.raises(FolderError, match=r"no corpus for split 't3'.*Splits that are there: medical"):
        read_split(folder, "t3")
    shutil.rmtree(folder / DENSE)
    with pytest.raises(FolderError, match=f"declares '{DENSE}/medical.parquet'"):
        read_split(folder, "medical", [DENSE])
    with pytest.raises(FolderError, match="no such folder"):
        read_split(tmp_path / "absent", "medical")


def test_ordinary_folders_are_not_nano_sets(tmp_path, make_folder):
    assert not is_nano(make_folder("Reranking"))
    assert not is_nano(make_folder("STS"))
    assert not is_nano(tmp_path / "absent")
