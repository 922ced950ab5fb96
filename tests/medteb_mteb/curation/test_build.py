"""Builds from one file: steps in order, resumption, forecasts, refusals, and no answer paid twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import rule_judges
import yaml
from tests.conftest import write_jsonl
from tests.medteb_mteb.curation.diseases import DISEASES, SYNONYMS

from mar_st.errors import MarError
from medteb_mteb.curation.build import BuildSettings, as_text, build
from medteb_mteb.curation.build_file import STEPS as STEP_TABLE
from medteb_mteb.curation.build_file import load_build
from medteb_mteb.editions import load_edition, verify

ASKED = ("不能吃什么", "怎么治疗", "会传染吗")
ANSWERS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。", "是常见病。")
NAMED = {"queries": "queries", "documents": "documents"}
STEPS = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
    {"step": "anonymize", "name": "anonymous", "in": "documents.jsonl"},
    {"step": "dedup", "name": "documents", "in": "anonymous"},
    {"step": "pool", **NAMED, "retrievers": ["bm25"], "size": 6, "depth": 6},
    {"step": "judge", **NAMED, "pools": "pool"},
    {"step": "consensus", "name": "labels", "in": "judge"},
    {"step": "assemble", "labels": "labels", **NAMED, "edition": "clinic", "test": 0.5, "small": True}
    | {"sources": {"forum": "mit"}},
]


@pytest.fixture(scope="module")
def server(endpoint):
    with rule_judges.serving(endpoint) as url:
        yield url


@pytest.fixture
def write(tmp_path, server):
    """Writes the file of a build, and its texts: `write(steps=STEPS, **content)` -> its path."""

    def rows(name, texts):
        write_jsonl(tmp_path / name, [{"_id": key, "text": text} for key, text in texts.items()])

    rows("queries.jsonl", {f"q{i}{j}": d + a for i, d in enumerate(DISEASES) for j, a in enumerate(ASKED)})
    documents = {f"d{i}{j}": d + a for i, d in enumerate(DISEASES) for j, a in enumerate(ANSWERS)}
    rows("documents.jsonl", documents | {"copy": documents["d00"]})
    judges = [{"name": name, "model": name, "base_url": server} for name in ("rule-words", "rule-strict")]

    def call(steps=STEPS, **content):
        path = tmp_path / "build.yaml"
        licence = {"licence": "cc-by-4.0"} if "assemble" in str(steps) else {}
        content = {"judges": judges, **licence, **content, "steps": steps}
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return path

    return call


def run(path, **options):
    return build(BuildSettings(file=path, **options))


def kept(report):
    return [one["kept"] for one in report["steps"]]


def test_a_build_gives_editions_that_say_how_they_were_made(write, tmp_path, endpoint):
    path = write()
    before = endpoint.requests
    report = run(path)
    assert endpoint.requests > before
    assert (report["stopped"], report["leakage"]["leaks"], kept(report)) == ("", 0, [False] * 7)
    rows = {one["name"]: one["rows"] for one in report["steps"]}
    assert (rows["queries"], rows["anonymous"], rows["documents"]) == (36, 49, 45)
    data = tmp_path / "build" / "data"
    edition = load_edition(data / "MedTEBRetrieval")
    verify(edition)
    assert (edition.licence, edition.extra["sources"]) == ("cc-by-4.0", [{"name": "forum", "licence": "mit"}])
    assert (data / "train" / "triples.jsonl").is_file()
    provenance = json.loads((edition.path / "provenance.json").read_text())
    assert [one["name"] for one in provenance["judges"]] == ["rule-strict", "rule-words"]
    assert provenance["anonymisers"]
    assert provenance["retrievers"][0]["name"] == "bm25"
    assert provenance["consensus"][0]["rule"] == "unanimous"
    assert str(tmp_path) not in (edition.path / "provenance.json").read_text()
    asked = endpoint.requests
    assert kept(run(path)) == [True] * 7
    assert endpoint.requests == asked
    assert "finished" in as_text(run(path, dry_run=True))


def test_a_changed_step_and_those_after_it_run_again_without_paying_twice(write, tmp_path, endpoint):
    run(write())
    asked = endpoint.requests
    steps = [*STEPS[:5], {**STEPS[5], "rule": "majority"}, STEPS[6]]
    assert kept(run(write(steps))) == [True] * 5 + [False] * 2
    # Another pool: only the pairs that are new are asked for, and none if it shrinks.
    steps = [*STEPS[:3], {**STEPS[3], "size": 4}, *STEPS[4:]]
    forecast = {one["name"]: one for one in run(write(steps), dry_run=True)["steps"]}
    assert (forecast["documents"]["finished"], forecast["pool"]["finished"]) == (True, False)
    assert kept(run(write(steps))) == [True] * 3 + [False] * 4
    assert endpoint.requests == asked
    # A file that was changed by hand is not lost.
    (tmp_path / "build" / "labels" / "labels.jsonl").write_text("mine")
    with pytest.raises(MarError, match=r"'labels': .*changed by hand"):
        run(write())


def test_values_of_the_command_line_fill_the_file(write, tmp_path):
    path = write(out="months/{month}")
    assert load_build(path, {"month": "2026-11"}).root == tmp_path / "months" / "2026-11"
    for values, problem in (
        ({}, "give --set month=VALUE"),
        ({"month": "2026-11", "moth": "x"}, "no string of .* has {moth}"),
        ({"month": "../2026"}, "a value has letters"),
        ({"month": ""}, "a value has letters"),
    ):
        with pytest.raises(MarError, match=problem):
            load_build(path, values)


def test_a_model_may_be_that_of_an_earlier_step(write, tmp_path):
    begin = {"step": "start", "documents": "anonymous", "month": "2026-10", "first": "mar-mini"}
    begin |= {name: name for name in ("months", "live", "releases")}
    steps = [*STEPS[:2], begin, {"step": "dedup", "name": "documents", "in": "start"}]
    pooled = {**STEPS[3], "retrievers": ["bm25", "start/model"]}
    rest = [pooled, *STEPS[4:]]
    built = load_build(write([*steps, *rest]))
    assert built.steps[4].settings.retrievers == ("bm25", str(tmp_path / "build" / "start" / "model"))
    # The model is not there yet, so it is not looked for before the step runs.
    report = run(write([*steps, *rest]), until="documents")
    assert [one["rows"] for one in report["steps"]] == [36, 49, 49, 45]
    with pytest.raises(MarError, match="'pool'"):
        run(write([*STEPS[:3], {**pooled, "retrievers": ["./nowhere/model"]}, *STEPS[4:]]))


def test_until_runs_only_the_steps_up_to_one(write, tmp_path):
    path = write()
    names = [one["name"] for one in run(path, until="documents")["steps"]]
    assert names == ["queries", "anonymous", "documents"]
    assert not (tmp_path / "build" / "pool").exists()
    with pytest.raises(MarError, match="no step 'nope'"):
        run(path, until="nope")


def test_a_killed_build_continues_with_the_same_bytes(write, tmp_path, monkeypatch, content):
    run(write(out="whole"))
    path = write(out="killed")
    for name in ("documents", "judge", "assemble"):
        step = STEP_TABLE["dedup" if name == "documents" else name]

        def killed(settings, step=step):
            step.run(settings)
            raise KeyboardInterrupt  # before the step is recorded as finished

        with monkeypatch.context() as patch:
            patch.setitem(STEP_TABLE, step.name, replace(step, run=killed))
            with pytest.raises(KeyboardInterrupt):
                run(path)
    assert kept(run(path)) == [True] * 6 + [False]
    whole, again = content(tmp_path / "whole"), content(tmp_path / "killed")
    assert whole.keys() == again.keys()
    # Who answered which pairs on which day is in the journal, whose answers are of several runs.
    differ = {name for name in whole if whole[name] != again[name]}
    assert all(name.endswith("provenance.json") for name in differ)


def test_a_build_that_stops_at_a_budget_continues_later(write, tmp_path, server):
    judge = {"name": "rule-words", "model": "rule-words", "base_url": server, "price_in": 1.0}
    path = write(judges=[{**judge, "budget": 0.001}])
    report = run(path)
    assert report["failed"]
    assert "step 'judge' stopped" in report["stopped"].lower()
    assert "The same command continues" in as_text(report)
    report = run(write(judges=[{**judge, "budget": 100.0}]))
    assert (report["stopped"], kept(report)[:4]) == ("", [True] * 4)


def test_the_forecast_bounds_what_the_build_does(write, endpoint):
    path = write(judges=[{**one, "price_in": 2.0} for one in yaml.safe_load(write().read_text())["judges"]])
    before = {one["name"]: one for one in run(path, dry_run=True)["steps"]}
    asked = endpoint.requests
    report = run(path)
    for one in report["steps"]:
        assert one["rows"] <= before[one["name"]]["rows"]
    # Positives are checked with further requests, whose number depends on the answers.
    assert 0 < endpoint.requests - asked <= 2 * before["judge"]["requests"]
    assert before["judge"]["cost"] == pytest.approx(before["judge"]["prompt_tokens"] * 2e-6)
    # With the pools there, all grades are known.
    again = {one["name"]: one for one in run(write(), dry_run=True)["steps"]}
    assert all(one["finished"] for name, one in again.items() if name in ("pool", "queries", "documents"))


def test_training_data_and_tests_of_all_steps_are_kept_apart(write, tmp_path, server):
    (tmp_path / "synonyms.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in [("origin", "replace"), *SYNONYMS.items()]), encoding="utf-8"
    )
    llm = {"name": "rewriter", "model": "rule-rewriter", "base_url": server}
    sts = {"step": "sts", "dictionary": "synonyms.tsv", "queries": "queries", "edition": "clinic"}
    steps = [
        *STEPS,
        {**sts, "test": 0.4, "llm": llm},
        {"step": "pairs", "queries": ["queries"], "documents": ["documents"]},
    ]
    loaded = load_build(write(steps))
    by_name = {planned.name: planned for planned in loaded.steps}
    assert [one.name for one in by_name["pairs"].sources["against"]] == ["assemble", "sts"]
    assert [one.name for one in by_name["sts"].sources["training"]] == ["assemble"]
    report = run(write(steps))
    leakage = report["leakage"]
    assert (leakage["leaks"], leakage["tests"] > 0) == (0, True)
    assert set(leakage["training"]) == {"assemble", "sts", "pairs"}
    # Queries of a test that are trained on are reported, and the command fails.
    training = tmp_path / "build" / "pairs" / "queries.jsonl"
    test = (tmp_path / "build" / "assemble" / "MedTEBRetrieval" / "queries.jsonl").read_text("utf-8")
    training.write_text(training.read_text("utf-8") + test.splitlines()[0] + "\n", encoding="utf-8")
    report = run(write(steps))
    leaky = report["leakage"]["training"]["pairs"]
    assert (report["failed"], leaky["leaks"]) == (True, 1)
    assert leaky["examples"][0]["query"] == json.loads(test.splitlines()[0])["text"]
    # Editions of later steps stay in `data`.
    run(write(steps), until="assemble")
    assert (tmp_path / "build" / "data" / "MedTEBSTS").is_dir()
    assert "near-duplicates of the build's tests" in as_text(report)


def test_texts_that_were_not_anonymised_are_not_sent(write, endpoint):
    raw = {"queries": "queries.jsonl", "documents": "documents.jsonl"}
    steps = [
        {"step": "pool", **raw, "retrievers": ["bm25"], "size": 1},
        {"step": "judge", **raw, "pools": "pool"},
    ]
    asked = endpoint.requests
    with pytest.raises(MarError, match="'judge' sends its queries to an LLM, and no 'anonymize'"):
        run(write(steps))
    assert endpoint.requests == asked
    assert run(write(steps, already_anonymous=True))["stopped"] == ""


def test_a_missing_key_is_found_before_the_first_step(write, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    judge = {"name": "far", "model": "m", "base_url": "https://example.org/v1", "api_key_env": "NO_SUCH_KEY"}
    with pytest.raises(MarError, match="NO_SUCH_KEY"):
        run(write(judges=[judge]))
    assert not (tmp_path / "build").exists()


def test_settings_may_be_in_files_of_their_own_and_runs_may_be_pooled(write, tmp_path, server):
    (tmp_path / "judges.yaml").write_text(
        yaml.safe_dump([{"name": "rule-words", "model": "rule-words", "base_url": server}])
    )
    (tmp_path / "mine.trec").write_text("q00 Q0 d01 1 2.0 x\n")
    steps = [*STEPS[:3], {**STEPS[3], "retrievers": ["bm25", "mine.trec"]}, *STEPS[4:5]]
    loaded = load_build(write(steps, judges="judges.yaml"))
    assert [one.name for one in loaded.steps[4].settings.judges.judges] == ["rule-words"]
    assert loaded.steps[3].settings.retrievers == ("bm25", str(tmp_path / "mine.trec"))


def changed(number, **fields):
    return [{**step, **fields} if place == number else step for place, step in enumerate(STEPS)]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("x", "'steps', a list"),
        ([], "'steps', a list"),
        (changed(0, out="elsewhere"), "'queries' has 'out'"),
        ([{"name": "x"}], "step 1 must be a mapping"),
        ([{"step": "poool"}], "Did you mean 'pool'"),
        ([{"step": "nothing"}], "Choose from anonymize"),
        (changed(0, color="red"), "'queries': color"),
        (changed(3, size=0), "'pool': size"),
        (changed(0, **{"in": "gone.jsonl"}), "there is no .*gone.jsonl"),
        (changed(0, **{"in": "pool"}), "no step 'pool' before it"),
        (changed(5, **{"in": "pool"}), r"expected judgements, but 'pool' \(pool\) writes pools"),
        (changed(1, name="queries"), "the name 'queries' is taken"),
        (changed(1, name="data"), "the name 'data' is taken"),
        (changed(1, name="../x"), "is the name of a folder"),
        ([*STEPS, {**STEPS[6], "name": "again"}], "two steps assemble write the same editions"),
        (changed(6, test=1.0), "a test of one query"),
    ],
)
def test_mistakes_in_the_file_are_refused_before_anything_is_done(write, tmp_path, steps, message):
    with pytest.raises(MarError, match=message):
        run(write(steps))
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("test", "message"), [(0.5, "at most 18 queries of the 30"), (50, "at most 36 queries of the 45")]
)
def test_a_test_that_would_be_too_small_is_refused_before_anything_is_paid(write, endpoint, test, message):
    asked = endpoint.requests
    path = write(changed(6, small=False, test=test))
    report = run(path, dry_run=True)
    assert report["failed"]
    assert message in as_text(report)
    with pytest.raises(MarError, match=message):
        run(path)
    assert endpoint.requests == asked


def test_a_default_that_no_step_has_is_refused(write):
    with pytest.raises(MarError, match="no step has the option 'colour'"):
        run(write(colour="red"))
