from __future__ import annotations

import json

import pytest
from datasets import load_dataset

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.nano import NanoSettings, build_nano
from medteb_mteb.curation.nano.build import list_name, open_dense
from medteb_mteb.nano.layout import list_names, read_split, splits_of

THEMES = ["感冒", "高血压", "糖尿病", "胃炎", "骨折", "鼻炎"]


@pytest.fixture
def source(tmp_path):
    """130 documents; 12 queries, two of one text and one without a positive."""
    folder = tmp_path / "source"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{i}", "title": "", "text": f"{THEMES[i % 6]}的第{i}条说明"} for i in range(130)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": f"q{i}", "text": f"{THEMES[i % 6]}怎么办{i % 11}"} for i in range(12)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    lines = [f"q{i}\td{i + 100}\t{int(i != 3)}" for i in range(12)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def test_a_split_is_drawn_ranked_checked_and_written(tmp_path, source, encoder_folder):
    dense = open_dense(str(encoder_folder), show_progress=False)
    out = tmp_path / "NanoOwn"
    built = build_nano(source, out, dense=dense)
    data = read_split(out, "source")  # which checks it
    assert splits_of(out) == ["source"]
    assert set(list_names(out)) == {"bm25", "tiny_encoder", "reranking_hybrid"} == set(data.lists)
    assert (built["queries"], built["documents"], built["positives"]) == (11, 130, 11)
    assert {len(row) for row in data.lists["bm25"].values()} == {130}
    missed = [query for query, row in data.lists["reranking_hybrid"].items() if len(row) == 101]
    assert (
        built["safeguards"]
        == len(missed)
        == round(11 * (1 - built["lists"]["reranking_hybrid"]["hit_at_100"]))
    )
    assert missed
    record = json.loads((out / "nano.json").read_text())["splits"]["source"]
    assert record == built
    assert (record["settings"]["k1"], record["settings"]["b"], record["settings"]["k"]) == (1.5, 0.75, 100)
    assert record["settings"]["tokens"] == "jieba"


def test_datasets_reads_what_was_written(tmp_path, source, datasets_cache):
    out = tmp_path / "NanoForDatasets"
    build_nano(source, out, name="medical")
    corpus = load_dataset(str(out), "corpus", split="medical")
    assert corpus.column_names == ["_id", "text"]
    rows = load_dataset(str(out), "bm25", split="medical")
    assert rows["query-id"] == list(read_split(out, "medical").queries)


def test_a_repeated_build_is_kept_and_a_different_one_is_refused(tmp_path, source):
    out = tmp_path / "NanoOwn"
    said: list[str] = []
    first = build_nano(source, out, name="a")
    before = {path: path.read_bytes() for path in sorted(out.rglob("*.parquet"))}
    assert build_nano(source, out, name="a", say=said.append) == first
    assert said == ["a: built before"]
    build_nano(source, out, name="b", settings=NanoSettings(queries=5))
    assert splits_of(out) == ["a", "b"]
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(BuildError, match="a split 'a' with other settings"):
        build_nano(source, out, name="a", settings=NanoSettings(queries=5))
    (out / "bm25" / "a.parquet").write_bytes(b"")
    with pytest.raises(BuildError, match="is not what was built"):
        build_nano(source, out, name="a")


def test_a_build_that_was_cut_short_starts_over(tmp_path, source, monkeypatch):
    out = tmp_path / "NanoOwn"
    whole = build_nano(source, tmp_path / "whole", name="a")
    from medteb_mteb.curation.nano import build as module

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(module, "_write_card", stop)
        with pytest.raises(KeyboardInterrupt):
            build_nano(source, out, name="a")
    assert build_nano(source, out, name="a") == whole


def test_bad_input_is_refused(tmp_path, source, encoder_folder):
    with pytest.raises(BuildError, match="A split is named by"):
        build_nano(source, tmp_path / "out", name="../a")
    with pytest.raises(BuildError, match="size is at most depth"):
        build_nano(source, tmp_path / "out", settings=NanoSettings(depth=50))
    with pytest.raises(BuildError, match="has no prompt 'web_search_query'"):
        open_dense(str(encoder_folder), prompt_name="web_search_query")
    with pytest.raises(BuildError, match="holds other files"):
        build_nano(source, source)


def test_lists_are_named_as_the_published_one():
    assert list_name("microsoft/harrier-oss-v1-270m") == "harrier_oss_v1_270m"
    assert list_name("mar-mini") == "mar_mini"


def test_the_command_builds_a_split_and_prints_its_counts(tmp_path, source, encoder_folder, medteb):
    out = tmp_path / "NanoOwn"
    code, shown, _ = medteb("build", "nano", source, out, "--as", "s", "--dense", encoder_folder, "--quiet")
    assert code == 0
    assert "11 queries, 130 documents, 11 positives" in shown
    assert "of 11 lists end with a safeguard" in shown
    code, shown, _ = medteb(
        "build", "nano", source, out, "--as", "s", "--dense", encoder_folder, "--json", "-q"
    )
    assert json.loads(shown) == json.loads((out / "nano.json").read_text())["splits"]["s"]
    code, _, error = medteb("build", "nano", tmp_path / "absent", out)
    assert (code, "no such folder" in error) == (2, True)
