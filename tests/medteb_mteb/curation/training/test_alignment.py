from __future__ import annotations

import json
from collections import Counter

import pytest
import yaml
from typer.testing import CliRunner

from mar_st.data import read_source
from mar_st.recipes.schema import AlignStage, Data
from mar_st.stages.align import text_groups
from medteb_mteb.cli import app
from medteb_mteb.commands.pairs import pairs as pairs_command
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import (
    Weighted,
    alignment_sets,
    read_held_out,
    training_queries,
    weighted,
)


@pytest.fixture
def sources(tmp_path, write):
    write(
        tmp_path / "faq.jsonl",
        [{"_id": f"f{i}", "text": f"问题{i}"} for i in range(6)] + [{"_id": "again", "text": "问题0"}],
    )
    write(
        tmp_path / "forum.jsonl",
        [{"_id": f"g{i}", "text": f"帖子{i}"} for i in range(3)] + [{"_id": "same", "text": "问题5"}],
    )
    write(
        tmp_path / "articles.jsonl",
        [
            {"_id": "a0", "title": "感冒", "text": "多休息"},
            {"_id": "a1", "title": "流感", "text": "多休息"},
            {"_id": "a2", "title": "", "text": "感冒\n多休息"},
            {"_id": "a3", "text": "问题0"},
        ],
    )
    return tmp_path


def test_texts_are_written_once_and_sources_evenly_mixed(sources, rows_of):
    report = alignment_sets(
        sources / "out",
        [Weighted(str(sources / "faq.jsonl")), Weighted(str(sources / "forum.jsonl"))],
        [Weighted(str(sources / "articles.jsonl"))],
        show_progress=False,
    )
    queries = rows_of(sources / "out/queries.jsonl")
    assert [row["_id"] for row in queries] == ["f0", "g0", "f1", "f2", "g1", "f3", "f4", "g2", "f5"]
    assert [row["source"] for row in queries[:3]] == [0, 1, 0]
    # Equal with its title is equal; a query's text may also be a document's.
    documents = rows_of(sources / "out/corpus.jsonl")
    assert [row["_id"] for row in documents] == ["a0", "a1", "a3"]
    assert documents[0]["title"] == "感冒"
    dropped = rows_of(sources / "out/dropped.jsonl")
    assert [(row["_id"], row["role"], row["source"], row["reason"]) for row in dropped] == [
        ("again", "query", 0, "duplicate"),
        ("same", "query", 1, "duplicate"),
        ("a2", "document", 0, "duplicate"),
    ]
    assert report.kept == {"query": 9, "document": 3}
    assert [source["dropped"] for source in report.sources] == [{"duplicate": 1}] * 3


def test_a_weight_takes_a_drawn_share(sources, write, rows_of):
    write(sources / "many.jsonl", [{"_id": f"m{i}", "text": f"很多{i}"} for i in range(200)])
    given = [Weighted(str(sources / "many.jsonl"), 0.25), Weighted(str(sources / "faq.jsonl"))]
    report = alignment_sets(sources / "out", given, show_progress=False)
    rows = rows_of(sources / "out/queries.jsonl")
    assert Counter(row["source"] for row in rows) == {0: 50, 1: 6}
    drawn = [int(row["_id"][1:]) for row in rows if row["source"] == 0]
    assert drawn == sorted(drawn)
    assert drawn != list(range(50))
    assert report.sources[0]["dropped"] == {"not-drawn": 150}
    # Any piece holds the sources in their shares.
    half = Counter(row["source"] for row in rows[:28])
    assert half == {0: 25, 1: 3}
    other = alignment_sets(sources / "other", given, seed=1, show_progress=False)
    assert other.kept == report.kept
    assert rows_of(sources / "other/queries.jsonl") != rows


def test_the_align_stage_reads_them(sources):
    report = alignment_sets(
        sources / "out",
        [Weighted(str(sources / "faq.jsonl"))],
        [Weighted(str(sources / "articles.jsonl"))],
        show_progress=False,
    )
    entries = [Data.model_validate(row) for row in yaml.safe_load("\n".join(report.data()))]
    stage = AlignStage(stage="align", name="align", batch_size=4, learning_rate=1e-3, temperature=0.1)
    groups = text_groups([read_source(entry, 42) for entry in entries], stage)
    assert {group.role: group.texts for group in groups} == {
        "query": [f"问题{i}" for i in range(6)],
        "document": ["感冒\n多休息", "流感\n多休息", "问题0"],
    }


def test_resumed_equals_uninterrupted(sources, content, monkeypatch):
    import medteb_mteb.curation.training.alignment as module

    given = ([weighted(f"{sources}/faq.jsonl=0.5")], [weighted(f"{sources}/articles.jsonl")])
    alignment_sets(sources / "whole", *given, show_progress=False)
    real, calls = module.write_json, []

    def killed(path, text):
        calls.append(path.name)
        if path.name == "manifest.json":
            raise KeyboardInterrupt
        real(path, text)

    monkeypatch.setattr(module, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        alignment_sets(sources / "out", *given, show_progress=False)
    monkeypatch.setattr(module, "write_json", real)
    alignment_sets(sources / "out", *given, show_progress=False)
    assert content(sources / "out") == content(sources / "whole")
    (sources / "faq.jsonl").write_text('{"_id": "x", "text": "别的"}\n')
    with pytest.raises(BuildError, match="step pairs with other input"):
        alignment_sets(sources / "out", *given, show_progress=False)


def test_columns_are_named_for_all_sources(sources, write, rows_of):
    write(sources / "other.jsonl", [{"frage": "一"}, {"frage": "二"}])
    given = [Weighted(str(sources / "other.jsonl"))]
    alignment_sets(sources / "out", given, columns={"text": "frage"}, show_progress=False)
    assert [row["text"] for row in rows_of(sources / "out/queries.jsonl")] == ["一", "二"]


def test_no_half_written_file_is_left(sources, monkeypatch):
    import medteb_mteb.curation.training.alignment as module

    def full(self, show_progress):
        yield {"_id": "a"}
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module._Side, "rows", full)
    with pytest.raises(BuildError, match=r"queries.jsonl cannot be written \(No space left on device\)"):
        alignment_sets(sources / "out", [Weighted(str(sources / "faq.jsonl"))], show_progress=False)
    assert not list((sources / "out").glob("queries.jsonl*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("faq.jsonl", ("faq.jsonl", 1.0)),
        ("faq.jsonl=0.5", ("faq.jsonl", 0.5)),
        ("hub:a/b:train=1", ("hub:a/b:train", 1.0)),
        ("a=b.jsonl", ("a=b.jsonl", 1.0)),
    ],
)
def test_the_share_is_read_from_the_source(text, expected):
    assert (weighted(text).source, weighted(text).weight) == expected


def test_invalid_settings_are_refused():
    with pytest.raises(BuildError, match="above 0 and up to 1; got 2"):
        weighted("faq.jsonl=2")
    with pytest.raises(BuildError, match="need queries or documents"):
        alignment_sets("out")


def test_the_command_writes_both_sides_and_prints_lines_for_the_recipe(command, sources, monkeypatch):
    monkeypatch.chdir(sources)
    code, out, err = command(
        pairs_command, "out", "--queries", "faq.jsonl", "--queries", "forum.jsonl", "--documents",
        "articles.jsonl", "-q",
    )  # fmt: skip
    assert code == 0
    assert "no --against EDITION was given" in err
    assert "query: 6 of 7 faq.jsonl, 1 duplicate" in out
    assert '- {name: aligned-documents, path: "out", form: texts, role: document}' in out
    code, out, _ = command(pairs_command, "out", "--queries", "faq.jsonl", "--queries", "forum.jsonl",
                           "--documents", "articles.jsonl", "--json")  # fmt: skip
    assert json.loads(out)["kept"] == {"query": 9, "document": 3}


def test_queries_of_a_test_are_left_out(sources, write, rows_of):
    write(sources / "test.jsonl", [{"_id": "t", "text": "问题3？"}])
    out = sources / "out"
    arguments = ["pairs", str(out), "--queries", str(sources / "faq.jsonl"), "-q"]
    arguments += ["--documents", str(sources / "faq.jsonl"), "--against", str(sources / "test.jsonl")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "no --against" not in result.output
    assert "问题3" not in {row["text"] for row in rows_of(out / "queries.jsonl")}
    assert "问题3" in {row["text"] for row in rows_of(out / "corpus.jsonl")}
    dropped = [row for row in rows_of(out / "dropped.jsonl") if row["reason"] == "test-query"]
    assert [(row["_id"], row["role"]) for row in dropped] == [("f3", "query")]
    tests = read_held_out([sources / "test.jsonl"])
    assert tests.leaks(training_queries(out)) == {}
    assert len(tests.leaks(training_queries(sources / "faq.jsonl"))) == 1
    with pytest.raises(BuildError, match="other against"):
        alignment_sets(out, [Weighted(str(sources / "faq.jsonl"))], [Weighted(str(sources / "faq.jsonl"))])
