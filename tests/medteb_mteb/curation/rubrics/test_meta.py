"""Agreement of graders with people, against independent code and by simulation."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.build import forecast
from medteb_mteb.curation.build_file import load_build
from medteb_mteb.curation.rubrics.grade import GRADE
from medteb_mteb.curation.rubrics.graders import Words
from medteb_mteb.curation.rubrics.meta import GRADERS, read_labelled
from medteb_mteb.curation.rubrics.people import Labelled, among_people, calibrated_mean, with_people

sklearn = pytest.importorskip("sklearn.metrics")


def ac1(one, other) -> float:
    """Gwet's AC1 of two raters and two categories, by its definition."""
    observed = np.mean(one == other)
    share = (np.mean(one) + np.mean(other)) / 2
    chance = 2 * share * (1 - share)
    return (observed - chance) / (1 - chance)


def simulated(random, questions=40, per_question=6, raters=3):
    """Labels of raters and verdicts of a grader, both noisy views of a truth that depends on the question."""
    easy = random.beta(2, 2, size=questions).repeat(per_question)
    truth = random.random(len(easy)) < easy
    errors = random.uniform(0.05, 0.2, size=raters)
    labels = truth[:, None] ^ (random.random((len(truth), raters)) < errors)
    verdicts = truth ^ (random.random(len(truth)) < 0.25)
    place = np.arange(questions).repeat(per_question)
    return Labelled(labels.astype(int), place), verdicts.astype(int)


def test_estimates_against_their_definitions():
    data, verdicts = simulated(np.random.default_rng(1))
    data.labels[:40, 2] = -1  # a tie or an agreement of the other two
    verdicts[50:60] = -1
    majority = np.array([np.sign((row == 1).sum() - (row == 0).sum()) for row in data.labels])
    known = (majority != 0) & (verdicts >= 0)
    person = (majority[known] > 0).astype(int)
    found = with_people(data, verdicts)
    assert found["kappa"].value == pytest.approx(sklearn.cohen_kappa_score(person, verdicts[known]))
    assert found["ac1"].value == pytest.approx(ac1(person, verdicts[known]))

    def kappa(one, other):
        both = (one >= 0) & (other >= 0)
        return sklearn.cohen_kappa_score(one[both], other[both])

    columns = list(data.labels.T)
    assert found["single"].value == pytest.approx(np.mean([kappa(one, verdicts) for one in columns]))
    pairs = [kappa(one, other) for one, other in combinations(columns, 2)]
    assert among_people(data).value == pytest.approx(np.mean(pairs))
    mean = verdicts[verdicts >= 0].mean() + (person - verdicts[known]).mean()
    assert calibrated_mean(data, verdicts).value == pytest.approx(mean)
    for estimate in (*found.values(), among_people(data), calibrated_mean(data, verdicts)):
        assert estimate.low < estimate.value < estimate.high


def test_a_category_of_one_question_or_label_has_no_interval():
    one = with_people(Labelled(np.array([[1, 1], [0, 1]]), np.zeros(2, int)), np.array([1, 0]))
    assert np.isnan([one["kappa"].low, one["single"].high]).all()
    same = with_people(Labelled(np.ones((4, 2), int), np.arange(4)), np.ones(4, int))
    assert np.isnan(same["kappa"]).all()


@pytest.mark.thorough
def test_nested_intervals_cover(monkeypatch):
    """Of 95 % intervals, nearly as many hold the value that very many questions and raters give."""
    monkeypatch.setattr("medteb_mteb.curation.rubrics.people.RESAMPLES", 200)
    random = np.random.default_rng(2)
    truths = {"kappa": [], "single": [], "people": [], "mean": []}
    for _ in range(30):
        data, verdicts = simulated(random, questions=400)
        found = with_people(data, verdicts)
        truths["kappa"].append(found["kappa"].value)
        truths["single"].append(found["single"].value)
        truths["people"].append(among_people(data).value)
        truths["mean"].append(np.mean(data.majority(range(3))))
    hits = dict.fromkeys(truths, 0)
    rounds = 50
    for _ in range(rounds):
        data, verdicts = simulated(random)
        labelled = data.labels.copy()
        labelled[random.permutation(40).repeat(6) >= 20] = -1  # half of the questions
        found = {**with_people(data, verdicts), "people": among_people(data)}
        found["mean"] = calibrated_mean(Labelled(labelled, data.questions), verdicts)
        for name in hits:
            hits[name] += found[name].low <= np.mean(truths[name]) <= found[name].high
    assert all(count / rounds > 0.8 for count in hits.values()), hits


def rows(labels=True):
    answer = "Drink water and rest. Take paracetamol."
    claims = [("drink water", True, "a"), ("stay in bed", False, "a"), ("take paracetamol", True, "b")]
    return [
        {
            "question": f"question {number}",
            "answer": answer,
            "criterion": text,
            "category": category,
            "labels": {"li": met, "wang": "Entailment" if met else "Neutral", "zhao": met ^ (number == 1)},
            "verdicts": {"other": not met if number == 2 else met},
        }
        for number in range(6)
        for text, met, category in claims
    ]


def test_graders_are_measured_and_scores_are_shown_by_their_agreement(tmp_path, write, run_step, rows_of):
    content = rows()
    content += [{key: value for key, value in one.items() if key != "labels"} for one in content[:3]]
    labelled = write(tmp_path / "labelled.jsonl", content)
    grader = Words(name="words", rule="words")
    counts = run_step(GRADERS, labelled=labelled, graders=(grader,))
    assert counts["rows"] == 21
    report = json.loads((tmp_path / "out/agreement.json").read_text())
    found = {(one["grader"], one["category"]): one for one in report["rows"]}
    assert set(report["graders"]) == {"other", "words"}
    assert found["words", "all"]["kappa"][0] == 1.0
    assert found["words", "a"]["statements"] == 14
    assert 0 < found["other", "all"]["kappa"][0] < 1
    assert [found["people", name]["statements"] for name in ("all", "a", "b")] == [18, 12, 6]
    assert len(rows_of(tmp_path / "out/verdicts.jsonl")) == 21
    criteria = [{"criterion": "drink water", "points": 1, "tags": ["axis:a"]}]
    criteria += [{"criterion": "take paracetamol", "points": 1, "tags": ["axis:b"]}]
    rubrics = write(
        tmp_path / "rubrics.jsonl",
        [{"_id": "q", "prompt": [{"role": "user", "content": "?"}], "rubrics": criteria}],
    )
    answers = write(tmp_path / "answers.jsonl", [{"_id": "q", "answer": "Drink water."}])
    options = {"rubrics": rubrics, "answers": (answers,), "agreement": tmp_path / "out", "grader": grader}
    run_step(GRADE, "graded", **options)
    graded = json.loads((tmp_path / "graded/scores.json").read_text())
    reasons = {row["value"]: row.get("not shown") for row in graded["scores"]}
    assert reasons == {"": None, "a": None, "b": "agreement not known"}  # people always say yes
    # The folders of steps as inputs of another build.
    file = tmp_path / "build.yaml"
    paths = "rubrics: rubrics.jsonl, answers: [answers.jsonl], agreement: out"
    entry = "grader: {name: words, rule: words}"
    file.write_text(
        f"steps:\n- {{step: grade, {paths}, {entry}}}\n- {{step: graders, labelled: labelled.jsonl}}"
    )
    assert [one["rows"] for one in forecast(load_build(file).steps)] == [12, 21]


@pytest.mark.parametrize(
    "change",
    [
        {"question": ""},
        {"criterion": None},
        {"labels": {"li": "perhaps"}},
        {"labels": "yes"},
        {"verdicts": [2]},
    ],
)
def test_unusable_labels_are_refused(change, tmp_path, write):
    with pytest.raises(MarError):
        read_labelled(write(tmp_path / "labelled.jsonl", [{**rows()[0], **change}]))


def test_statements_need_labels_and_graders(tmp_path, write, run_step):
    without = write(tmp_path / "without.jsonl", [{**rows()[0], "labels": {"li": None}}])
    with pytest.raises(MarError):
        read_labelled(without)
    nobody = write(tmp_path / "nobody.jsonl", [{**rows()[0], "verdicts": {}}])
    with pytest.raises(MarError):
        run_step(GRADERS, labelled=nobody)
    listed = write(tmp_path / "listed.jsonl", [{**rows()[0], "labels": ["是", "否", None]}])
    assert read_labelled(listed)[0].labels == {"1": True, "2": False}
