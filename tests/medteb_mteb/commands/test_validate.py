from __future__ import annotations

import json

import pytest


def test_a_report_is_printed_and_a_failing_point_sets_the_exit_code(medteb, make_folder):
    folder = make_folder("Retrieval")
    code, out, err = medteb("validate", folder)
    assert (code, err) == (1, "")  # three queries, no licence
    assert out.startswith("# Validation of tiny-retrieval\n")
    code, out, err = medteb("validate", folder, "--json")
    assert (code, err) == (1, "")
    content = json.loads(out)
    verdicts = {row["check"]: row["verdict"] for row in content["findings"]}
    assert (verdicts["size"], verdicts["card"], verdicts["judged@10"]) == ("fail", "fail", "not known")
    code, out, _ = medteb("validate", folder, "--html")
    assert (code, out.startswith("<!doctype html>")) == (1, True)


def test_a_task_name_is_its_edition_in_force(medteb, data_root):
    _, out, _ = medteb("validate", "MedTEBRetrieval")
    assert "edition mini 0.0.1" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere/at/all"], "/nowhere/at/all"),
        (["MedTEBSTS"], "retrieval and reranking folders"),
        (["MedTEBRetrieval", "--run", "gone.json"], "There is no run gone.json"),
        (["MedTEBRetrieval", "--pools", "gone"], "There are no pools at gone"),
        (["MedTEBRetrieval", "--judgements", "gone"], "There is no gone"),
        (["MedTEBRetrieval", "--json", "--html"], "choose one of --json and --html"),
    ],
)
def test_bad_input_is_one_error(medteb, data_root, arguments, message):
    code, out, err = medteb("validate", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_the_packaged_edition_has_holes_by_its_own_files(medteb):
    content = json.loads(medteb("validate", "MedTEBRetrieval", "--json")[1])
    assert content["verdicts"]["fail"] == 0
    judged = next(row for row in content["findings"] if row["check"] == "judged@10")
    assert (judged["verdict"], judged["numbers"]["bm25-char-bigram, judged@10"]) == ("warning", 0.5887)
