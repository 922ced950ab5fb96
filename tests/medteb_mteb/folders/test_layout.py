"""Cards, manifests and revisions of dataset folders."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.folders.tables import append, problems_of, rows_of, write_rows

from medteb_mteb.editions import write_manifest
from medteb_mteb.folders import inspect_folder, read_folder

HUB_CARD = """---
language: zh
configs:
- config_name: corpus
  data_files:
  - split: corpus
    path: data/corpus-*.jsonl
- config_name: queries
  data_files: data/queries.jsonl
- config_name: default
  data_files:
  - split: test
    path: data/judgements.tsv
medteb:
  name: 我的任务
  main_score: mrr_at_10
---
# Card
"""


def test_tables_declared_in_the_card_are_used(make_folder):
    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval
    data = folder / "data"
    data.mkdir()
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "corpus-1.jsonl").write_text("".join(lines[:4]), encoding="utf-8")
    (data / "corpus-2.jsonl").write_text("".join(lines[4:]), encoding="utf-8")
    (folder / "corpus.jsonl").unlink()
    (folder / "queries.jsonl").rename(data / "queries.jsonl")
    (folder / "qrels" / "test.tsv").rename(data / "judgements.tsv")
    (folder / "README.md").write_text(HUB_CARD, encoding="utf-8")
    read = read_folder(folder)
    assert read.retrieval == expected
    assert (read.name, read.layout.settings.main_score) == ("我的任务", "mrr_at_10")
    (data / "judgements.tsv").rename(folder.parent / "secret.tsv")
    (data / "judgements.tsv").symlink_to(folder.parent / "secret.tsv")
    assert "symbolic link out of the folder" in str(problems_of(folder))
    (data / "judgements.tsv").unlink()
    assert "declares 'data/judgements.tsv'" in str(problems_of(folder))


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\na: [1\n---\n", "README.md:2: the YAML header is malformed"),
        ("---\nmedteb: {typ: STS}\n---\n", "keys among"),
        ("---\nmedteb: {type: Sts}\n---\n", "'Sts' is not one of"),
        ("---\nmedteb: {prompt: 3}\n---\n", "prompt has the wrong type"),
        ("---\nconfigs: [{data_files: [{path: x}]}]\n---\n", "'configs' must list"),
        (
            "---\nconfigs: [{config_name: default, data_files: [{split: test, path: ../x}]}]\n---\n",
            "stay inside",
        ),
        (
            "---\nconfigs: [{config_name: default, data_files: [{split: test, path: LONG}]}]\n---\n".replace(
                "LONG", "x" * 300
            ),
            "cannot be looked up",
        ),
    ],
)
def test_malformed_cards_are_refused(make_folder, card, expected):
    folder = make_folder("STS")
    (folder / "README.md").write_text(card)
    assert expected in str(problems_of(folder))


def test_revision_follows_data_and_settings_but_not_the_place(make_folder, tmp_path):
    folder = make_folder("STS")
    first = inspect_folder(folder).revision()
    folder.rename(tmp_path / "elsewhere")
    folder = tmp_path / "elsewhere"
    assert inspect_folder(folder).revision() == first
    (folder / "README.md").write_text("---\nlanguage: zh\n---\nA card.\n")
    assert inspect_folder(folder).revision() == first
    (folder / "README.md").write_text("---\nmedteb: {prompt: 请比较}\n---\n")
    assert inspect_folder(folder).revision() != first
    (folder / "README.md").unlink()
    rows = rows_of(folder / "test.jsonl")
    rows[0]["score"] += 1
    write_rows(folder / "test.jsonl", rows)
    assert inspect_folder(folder).revision() != first


def test_a_manifest_is_verified_and_gives_name_and_revision(make_folder):
    folder = make_folder("STS")
    edition = write_manifest(
        folder, task="Mine", name="e", version="1", licence="mit", counts={"test": 6}, main_score="pearson"
    )
    read = read_folder(folder)
    assert (read.name, read.revision) == ("Mine", edition.digest)
    assert read.layout.settings.main_score == "pearson"
    (folder / "README.md").write_text("---\nmedteb: {main_score: spearman}\n---\n")
    assert "manifest.json says 'pearson'" in str(problems_of(folder))
    (folder / "README.md").unlink()
    append(folder / "test.jsonl", "\n")
    assert "test.jsonl has" in str(problems_of(folder))
    assert read_folder(folder, check_manifest=False).type == "STS"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "\n".join(
                ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
                + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
                + ["medteb: {name: *a8}"]
            ),
            "expand to too many values",
        ),
        ("a: &a [*a]\nmedteb: {name: *a}", "expand to too many values"),
        ("a: " + "[" * 20_000, "the YAML header is malformed"),
        ("date: 2026-13-45", "the YAML header is malformed"),
    ],
    ids=["aliases", "itself", "nested", "month"],
)
def test_headers_that_are_made_to_break_readers_are_one_error(make_folder, header, message):
    folder = make_folder("Retrieval")
    (folder / "README.md").write_text(f"---\n{header}\n---\n")
    (error,) = problems_of(folder).problems
    assert message in error


def test_a_header_may_use_aliases(make_folder):
    folder = make_folder("Retrieval")
    (folder / "README.md").write_text("---\na: &a [zh]\nlanguage: *a\n---\n")
    assert read_folder(folder).layout.settings.languages == ["zh"]
