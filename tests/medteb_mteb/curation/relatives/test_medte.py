"""MedTE's pairs out of raw files of the published layouts."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.relatives.api_server import Apis, serving
from tests.medteb_mteb.curation.relatives.raw_samples import NOTE, write_medquad, write_notes
from tests.medteb_mteb.curation.relatives.raw_samples import SOURCES as REAL
from tests.medteb_mteb.english.snapshots import write_csv

from mar_st.data import read_source
from mar_st.recipes.load import load_recipe
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import fetch_source
from medteb_mteb.curation.relatives.medte import PAIR_SOURCES, build_pairs, first_sentence


def write_lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def raw(tmp_path):
    """A folder per source, each with one or two pairs."""
    folder = tmp_path / "raw"
    article = {"title": "On fever", "abstract": "Fever is heat. It passes."}
    write_lines(folder / "pubmed" / "a.jsonl", article, article, {"title": "No abstract", "abstract": None})
    write_lines(folder / "biorxiv-medrxiv" / "b.jsonl", {"title": "On cells", "abstract": "Cells divide."})
    write_notes(folder / "mimic-iv", [NOTE, "no headings"])
    study = {
        "identificationModule": {"officialTitle": "A trial of tea"},
        "descriptionModule": {"detailedDescription": "We give tea.\n\nEvery day."},
    }
    pages = {"studies": [{"protocolSection": study}, {"protocolSection": {"identificationModule": {}}}]}
    (folder / "clinical-trials").mkdir()
    (folder / "clinical-trials" / "page-1.json").write_text(json.dumps(pages), encoding="utf-8")
    options = {"opa": "Skin", "opb": "Heart", "opc": "Liver", "opd": "Bone"}
    exam = {"question": "Which organ beats?", "cop": 2, "exp": "The heart beats.", "id": "x", **options}
    write_lines(folder / "medmcqa" / "train.json", exam)
    exam = {"question": "What is given?", "options": {"A": "Tea", "B": "Aspirin"}, "answer_idx": "B"}
    write_lines(folder / "medqa" / "train.jsonl", exam)
    write_medquad(folder / "medquad")
    for name in ("trec-covid", "nfcorpus", "curev1"):
        write_lines(folder / name / "corpus.jsonl", {"_id": "d1", "title": "Masks", "text": "They help."})
        write_lines(folder / name / "queries.jsonl", {"_id": "q1", "text": "Do masks help?"})
        (folder / name / "qrels").mkdir()
        (folder / name / "qrels" / "test.tsv").write_text(
            "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td1\t0\n"
        )
    return folder


def pairs_of(folder, name):
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(line).values()) for line in lines]


def test_pairs_have_the_form_of_the_paper_by_default(raw, tmp_path):
    report = build_pairs(raw, tmp_path / "out")
    assert list(report) == list(PAIR_SOURCES)
    assert sum(one["published"] for one in report.values()) == 2_033_800
    got = {name: pairs_of(tmp_path / "out", name) for name in report}
    assert got["pubmed"] == [("On fever", "Fever is heat.")]
    assert report["pubmed"]["left_out"] == {"repeated pairs": 1, "pairs with an empty text": 1}
    assert got["mimic-iv"] == [("He felt pain on stairs.", "chest pain")]
    assert got["clinical-trials"] == [("A trial of tea", "We give tea.\n\nEvery day.")]
    assert got["medmcqa"] == [("Which organ beats?", "The heart beats.")]
    assert got["medqa"] == [("What is given?", "Aspirin")]
    assert ("What is asthma ?", "Asthma is a disease of the airways & lungs.") in got["medquad"]
    assert got["nfcorpus"] == [("Do masks help?", "Masks\nThey help.")]


def test_pairs_can_have_the_form_of_the_code(raw, tmp_path):
    build_pairs(raw, tmp_path / "out", form="code")
    assert pairs_of(tmp_path / "out", "pubmed") == [("On fever", "Fever is heat. It passes.")]
    both = "Chief Complaint: chest pain History of Present Illness: He felt pain on stairs."
    assert pairs_of(tmp_path / "out", "mimic-iv") == [("Angina", both)]
    assert pairs_of(tmp_path / "out", "trec-covid") == [("Masks", "They help.")]


def test_the_recipe_reads_them(raw, tmp_path, monkeypatch):
    build_pairs(raw, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("medte")
    assert [entry.name for entry in recipe.data] == list(PAIR_SOURCES)
    assert [entry.expected_rows for entry in recipe.data] == [one.published for one in PAIR_SOURCES.values()]
    read = read_source(recipe.data[0], recipe.seed)
    assert [(one.query, list(one.positives)) for one in read.triples] == [("On fever", ["Fever is heat."])]


def test_texts_of_the_benchmark_are_left_out(raw, tmp_path):
    name = "retrieval_medquad_dataset"
    write_csv(
        tmp_path / "d" / "MedTEB-eng" / f"{name}.csv",
        ("query", "corpus"),
        [("a", "Fever is heat."), ("b", "c")],
    )
    only = tmp_path / "only"
    only.mkdir()
    (raw / "pubmed").rename(only / "pubmed")
    write_lines(only / "pubmed" / "c.jsonl", {"title": "Other", "abstract": "Colds pass."})
    report = build_pairs(only, tmp_path / "out", against=tmp_path / "d")
    assert report["pubmed"]["left_out"]["pairs whose second text is in the benchmark"] == 2
    assert pairs_of(tmp_path / "out", "pubmed") == [("Other", "Colds pass.")]
    with pytest.raises(BuildError, match="holds no files of English MedTEB to compare with"):
        build_pairs(only, tmp_path / "out", against=tmp_path)


def test_finished_files_are_kept_and_changed_ones_written_again(raw, tmp_path):
    progress = []
    first = build_pairs(raw, tmp_path / "out")
    assert build_pairs(raw, tmp_path / "out", say=progress.append) == first
    assert all(line.endswith("(written before)") for line in progress)
    write_lines(raw / "pubmed" / "a.jsonl", {"title": "New", "abstract": "Text."})
    progress.clear()
    assert build_pairs(raw, tmp_path / "out", say=progress.append)["pubmed"]["pairs"] == 1
    assert [line for line in progress if "written before" not in line] == [
        "pubmed: 1 pairs, 572,300 in the paper"
    ]
    (tmp_path / "out" / "medqa.jsonl").write_text("changed")
    with pytest.raises(BuildError, match=r"medqa\.jsonl is not what was written"):
        build_pairs(raw, tmp_path / "out")


def test_an_added_file_and_a_changed_benchmark_are_noticed(raw, tmp_path):
    only = tmp_path / "only"
    only.mkdir()
    (raw / "pubmed").rename(only / "pubmed")
    first = build_pairs(only, tmp_path / "out")
    write_lines(only / "pubmed" / "b.jsonl", {"title": "Added", "abstract": "Later."})
    assert build_pairs(only, tmp_path / "out")["pubmed"]["pairs"] == first["pubmed"]["pairs"] + 1
    progress: list[str] = []
    for place, text in (("d", "Later."), ("e", "Fever is heat.")):
        path = tmp_path / place / "MedTEB-eng" / "retrieval_medquad_dataset.csv"
        write_csv(path, ("query", "corpus"), [("a", text)])
        build_pairs(only, tmp_path / "out", against=tmp_path / place, say=progress.append)
    assert not any("written before" in line for line in progress)
    assert pairs_of(tmp_path / "out", "pubmed") == [("Added", "Later.")]


def test_a_changed_file_of_a_checkout_is_noticed(tmp_path):
    write_medquad(tmp_path / "raw" / "medquad", packed=False)
    first = build_pairs(tmp_path / "raw", tmp_path / "out")["medquad"]
    progress: list[str] = []
    build_pairs(tmp_path / "raw", tmp_path / "out", say=progress.append)
    assert progress[0].endswith("(written before)")
    for path in (tmp_path / "raw").rglob("*.xml"):
        path.write_bytes(path.read_bytes().replace(b"disease of the airways", b"disease of the bronchi"))
    assert build_pairs(tmp_path / "raw", tmp_path / "out")["medquad"]["sha256"] != first["sha256"]
    assert any("disease of the bronchi" in positive for _, positive in pairs_of(tmp_path / "out", "medquad"))


def test_a_source_whose_pairs_are_all_tested_does_not_stop_the_others(raw, tmp_path):
    path = tmp_path / "d" / "MedTEB-eng" / "retrieval_medquad_dataset.csv"
    write_csv(path, ("query", "corpus"), [("a", "The heart beats.")])
    with pytest.raises(
        BuildError, match=r"No pairs were built from medmcqa \(left out: .*in the benchmark': 1"
    ) as error:
        build_pairs(raw, tmp_path / "out", against=tmp_path / "d")
    assert "medquad" not in str(error.value)
    written = {path.stem for path in (tmp_path / "out").glob("*.jsonl")}
    assert written == set(PAIR_SOURCES) - {"medmcqa"}
    assert set(json.loads((tmp_path / "out" / "pairs.json").read_text())) == written


def test_responses_of_the_fetchers_are_articles(raw, tmp_path):
    with serving(Apis()) as apis:
        options = {"contact": "me@example.org", "per_second": 100, "address": apis.url}
        fetch_source("pubmed", tmp_path / "fetched" / "pubmed", **options)
        for server in ("biorxiv", "medrxiv"):
            fetch_source(server, tmp_path / "fetched" / "biorxiv-medrxiv" / server, **options)
        fetch_source("clinical-trials", tmp_path / "none" / "pubmed", **options)
    report = build_pairs(tmp_path / "fetched", tmp_path / "out", form="code")
    assert report["pubmed"]["pairs"] == 30
    assert pairs_of(tmp_path / "out", "pubmed")[0] == ("Title of 2000", "Aim 2000. Found < 2000.")
    assert report["biorxiv-medrxiv"]["pairs"] == 7 + 3
    assert list(report["biorxiv-medrxiv"]["made_from"]) == ["biorxiv/fetched.json", "medrxiv/fetched.json"]
    assert build_pairs(tmp_path / "fetched", tmp_path / "out", form="code") == report
    with pytest.raises(BuildError, match="is of 'clinical-trials', which has no articles with abstracts"):
        build_pairs(tmp_path / "none", tmp_path / "other")


def test_a_stopped_build_continues(raw, tmp_path):
    whole = build_pairs(raw, tmp_path / "whole")
    broken = raw / "medmcqa" / "train.json"
    original = broken.read_text()
    broken.write_text("{")
    with pytest.raises(BuildError, match="is not valid JSON"):
        build_pairs(raw, tmp_path / "out")
    assert not (tmp_path / "out" / "medmcqa.jsonl").exists()
    broken.write_text(original)
    progress = []
    assert build_pairs(raw, tmp_path / "out", say=progress.append) == whole
    assert sum("written before" in line for line in progress) == 4


def test_a_sentence_ends_before_a_capital():
    assert first_sentence("BACKGROUND: It rose by 3.5 mg. We stopped.") == "BACKGROUND: It rose by 3.5 mg."


def test_the_command_prints_the_number_of_pairs_of_each_source(raw, tmp_path, medteb):
    code, out, err = medteb("build", "medte-pairs", raw, tmp_path / "out")
    assert (code, err) == (0, "")
    assert "medqa: 1 pairs, 5,300 in the paper" in out
    assert "pubmed: left out: 1 repeated pairs" in out
    code, _, err = medteb("build", "medte-pairs", tmp_path, tmp_path / "x")
    assert code == 2
    assert "has none of the folders pubmed, " in err
    assert medteb("build", "medte-pairs", raw, tmp_path / "x", "--form", "both")[0] == 2


@pytest.mark.slow
def test_the_real_files_of_four_sources_give_the_known_numbers_of_pairs(tmp_path):
    places = {
        "medmcqa": "mirage/medmcqa/dev.json",
        "medqa": "mirage/medqa/phrases_no_exclude_test.jsonl",
        "medquad": "medquad/MedQuAD.tar.gz",
        "clinical-trials": "trials/clinical_trial_mini.csv",
    }
    for name, place in places.items():
        if not (REAL / place).is_file():
            pytest.skip(f"no raw files of the sources at {REAL / place}")
        (tmp_path / "raw" / name).mkdir(parents=True)
        (tmp_path / "raw" / name / (REAL / place).name).symlink_to(REAL / place)
    with pytest.raises(BuildError, match="symbolic link out of the folder"):
        build_pairs(tmp_path / "raw", tmp_path / "out")
    for name, place in places.items():
        file = tmp_path / "raw" / name / (REAL / place).name
        file.unlink()
        file.write_bytes((REAL / place).read_bytes())
    report = build_pairs(tmp_path / "raw", tmp_path / "out")
    assert report["medmcqa"]["pairs"] == 2206
    assert report["medqa"]["pairs"] == 1273
    assert report["medquad"]["pairs"] == 16_359
    assert report["clinical-trials"]["pairs"] == 99
