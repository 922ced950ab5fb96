"""Verdicts of a validation on a small folder, and the statistics behind them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy.stats import kendalltau

from medteb_mteb.folders.layout import FolderError
from medteb_mteb.report.page import Finding, Page, Table, to_markdown
from medteb_mteb.validate import ValidateSettings, validate
from medteb_mteb.validate.labels import kendall
from medteb_mteb.validate.material import mean_over_groups

EVERY = range(12)


def test_a_clean_folder_has_a_verdict_on_every_point(folder):
    page = validate(ValidateSettings(edition=str(folder)))
    assert len(page.findings) == 13
    too_small = {"Large enough to tell systems apart", "Queries are different questions"}
    assert {f.title for f in page.findings if f.verdict == "fail"} == too_small


@pytest.mark.parametrize(
    ("words", "name", "line", "verdict"),
    [
        ("Rows are valid", "corpus.jsonl", "{broken", "fail"),
        ("Rows are valid", "labels.tsv", "q0\tp0\t0", "fail"),
        ("different questions", "queries.jsonl", '{"_id": "q12", "text": "感冒吃什么药"}', "fail"),
        ("copies have one label", "corpus.jsonl",
         '{"_id": "c", "title": "感冒", "text": "得了感冒的病人应当在医生指导下用药，并注意休息。"}', "fail"),
    ],
)  # fmt: skip
def test_faults_of_the_files(folder, add, verdict_on, words, name, line, verdict):
    if name == "queries.jsonl":
        add("qrels/test.tsv", "q12\tp1\t1")
    add(name, line)
    assert verdict_on(words).verdict == verdict


@pytest.mark.parametrize(
    ("card", "verdict"), [("---\nlicense: unknown\n---\n", "fail"), ("---\nlicense: mit\n---\n", "ok")]
)
def test_licences(folder, verdict_on, card, verdict):
    (folder / "README.md").write_text(card)
    assert verdict_on("licence").verdict == verdict


def test_unjudged_results_are_holes(write_run, verdict_on):
    judged, unjudged = write_run("judged", "pn"), write_run("unjudged", "un")
    assert verdict_on("were judged", runs=(judged,)).verdict == "ok"
    finding = verdict_on("were judged", runs=(judged, unjudged))
    assert finding.verdict == "warning"
    assert "50.0%" in finding.reason
    assert "unjudged" in finding.reason


def test_a_retriever_that_alone_found_the_positives_shows_pool_bias(write_pools, verdict_on):
    shared = write_pools(bm25="pn", dense="pn")
    assert verdict_on("fairly", build=shared).verdict == "ok"
    alone = write_pools(bm25="un", dense="pn")
    assert verdict_on("fairly", build=alone).verdict == "fail"  # no query keeps a positive


def test_judges_agree_with_each_other(write_judgements, verdict_on):
    grades = {f"q{i} {kind}{i}": grade for i in EVERY for kind, grade in (("p", "S"), ("n", "D"))}
    opposite = {pair: "D" if grade == "S" else "S" for pair, grade in grades.items()}
    same = write_judgements("same", a=grades, b=grades)
    assert verdict_on("Judges agree", build=same).verdict == "ok"
    apart = write_judgements("apart", a=grades, b=opposite)
    assert verdict_on("Judges agree", build=apart).verdict == "fail"


def test_other_judges_order_systems_otherwise(write_run, write_judgements, verdict_on):
    runs = tuple(write_run(name, order) for name, order in (("a", "pnu"), ("b", "npu"), ("c", "unp")))
    grades = {f"q{i} {kind}{i}": grade for i in EVERY for kind, grade in (("p", "S"), ("n", "D"), ("u", "D"))}
    opposite = {pair: "S" if pair.split()[1][0] == "u" else "D" for pair in grades}
    same = write_judgements("same", a=grades, b=grades)
    assert verdict_on("order of systems", runs=runs, build=same).verdict == "ok"
    apart = write_judgements("apart", a=grades, b=opposite)
    assert verdict_on("order of systems", runs=runs, build=apart).verdict == "fail"


def test_a_judge_that_prefers_the_last_place_is_found(write_judgements, verdict_on):
    kinds = {"p": 1, "n": 2, "u": 3}
    grades = {f"q{i} {kind}{i}": "DBS"[place - 1] for i in EVERY for kind, place in kinds.items()}
    folder = write_judgements("biased", a=grades)
    rows = [
        {"judge": "a", "query-id": f"q{i}", "corpus-id": f"{kind}{i}", "place": place, "of": 3}
        for i in EVERY
        for kind, place in kinds.items()
    ]
    (folder / "judge" / "places.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert verdict_on("place in the prompt", build=folder).verdict == "fail"


def test_leaked_queries_fail(tmp_path, verdict_on):
    training = tmp_path / "train.jsonl"
    row = {"query": "感冒吃什么药", "positives": ["多休息"], "negatives": []}
    training.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    found = verdict_on("Training sets", against=(str(training),))
    assert (found.verdict, found.table.rows[0][0]) == ("fail", "感冒吃什么药")
    assert found.numbers["queries equal to a training text"] == 1
    row["query"] = "如何办理出院手续以及报销"
    training.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert verdict_on("Training sets", against=(str(training),)).verdict == "ok"


def test_folders_of_other_tasks_are_refused(make_folder):
    folder = make_folder("STS")
    with pytest.raises(FolderError):
        validate(ValidateSettings(edition=str(folder)))


def test_kendalls_tau_is_scipys():
    draw = np.random.default_rng(2)
    one, other = (draw.integers(0, 4, (50, 6)).astype(float) for _ in range(2))
    expected = [kendalltau(a, b).statistic for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(kendall(one, other), np.nan_to_num(expected), atol=1e-12)


def test_a_mean_over_groups_is_over_all_values():
    values, groups = np.array([1, 1, 1, 1, 0, 1, 0, 1, 0, 1.0]), np.repeat([0, 3, 4], [4, 1, 5])
    estimate = mean_over_groups(values, groups)
    assert estimate.value == pytest.approx(0.7)
    assert estimate.low < 0.7 < estimate.high
    assert np.isnan(mean_over_groups(values[:0], groups[:0]).value)


def test_texts_of_an_edition_cannot_add_markup():
    table = Table(("a|b",), (("<script>",),))
    page = Page("x\n# y", "<b>", (Finding("[t](u)", "fail", "a | b `c`", {"n": 1}, table),))
    markdown = to_markdown(page)
    assert not re.search(r"(?<!\\)<script>", markdown)
    assert "\n# y" not in markdown


def test_the_command_exits_with_1_if_a_point_fails(folder, medteb):
    code, out, _ = medteb("validate", folder)
    assert code == 1
    assert out.startswith("# Validation of clinic")
