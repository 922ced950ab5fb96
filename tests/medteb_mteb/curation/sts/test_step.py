"""The step over HTTP, with the rule-based rewriter behind the server that fails in every way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
import typer
import yaml
from fault_server import FaultEndpoint, rules
from llm_server import llm_at, running, serving

from mar_st.data import read_source
from mar_st.recipes.schema import Data
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.sts import sts as command
from medteb_mteb.curation.edition.assemble import Assembly, assemble
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.files.sources import TextSource
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.sts import StsSettings, estimate, sts
from medteb_mteb.editions import verify
from medteb_mteb.folders import inspect_folder

PAIRS = [
    ("高血压", "血压高"),
    ("糖尿病", "消渴症"),
    ("拉肚子", "腹泻"),
    ("发烧", "发热"),
    ("乳腺癌", "乳癌"),
    ("脑卒中", "中风"),
    ("近视", "近视眼"),
    ("尿毒症", "肾衰竭"),
]
ASKED = [
    "{}的人早上能不能空腹跑步",
    "听说{}以后要少熬夜是真的吗",
    "老人{}半年了怎么护理比较好",
    "{}会不会影响孩子长个子",
    "家里人都有{}，我以后也会有吗",
]
QUERIES = [asked.format(term) for term, _ in PAIRS for asked in ASKED]
HOW = StsSettings("clinic", "cc-by-4.0", test=0.4, threshold=0.9)


def answer(messages):
    return json.dumps(rules.rewritten(messages), ensure_ascii=False)


@pytest.fixture
def given(tmp_path):
    """Paths of the dictionary and the queries, and the folder of data."""
    terms, queries = tmp_path / "terms.tsv", tmp_path / "queries.jsonl"
    terms.write_text("origin\treplace\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    rows = [{"_id": f"q{i}", "text": text} for i, text in enumerate([*QUERIES, "肚子疼怎么办"])]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return terms, queries, tmp_path / "data"


def make(given, url, how=HOW, out=None, journal=None, **settings):
    options = {"already_anonymous": True, "show_progress": False, **settings}
    return sts(*given[:2], out or given[2], llm_at(url), how, journal=journal, **options)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_edition_and_training_rows_are_made_of_the_rewrites(given):
    with serving(answer) as url:
        report = make(given, url)
    folder = given[2]
    assert report.complete
    assert report.bought == len(QUERIES)
    assert report.dropped == {"no-term": 1}
    verify(report.edition)
    inspect_folder(report.edition.path)
    log = {row["query"]: row for row in lines(folder / "sts" / "rewrites.jsonl")}
    test = lines(folder / "MedTEBSTS" / "test.jsonl")
    assert len(test) == report.edition.counts["test"] == 15  # three entries of five queries
    for row in test:
        logged = log[row["sentence1"]]
        assert logged["use"] == "test"
        assert row["sentence2"] == logged[logged["drawn"]]
        assert row["score"] == float(logged["drawn"] == "positive")
    assert 0 < sum(row["score"] for row in test) < len(test)
    source = read_source(
        Data(name="sts", path=str(folder / "train" / "sts.jsonl"), prompt="STS", symmetric=True), 0
    )
    assert len(source.triples) == report.triples > 15
    for triple in source.triples:
        logged = log[triple.query]
        assert logged["use"] == "train"
        assert triple.positives == (logged["positive"],)
        assert triple.negatives == (logged["negative-1"], logged["negative-2"])
    terms = {use: {row["origin"] for row in log.values() if row["use"] == use} for use in ("test", "train")}
    assert terms["test"].isdisjoint(terms["train"])
    assert [row["reason"] for row in lines(folder / "sts" / "dropped.jsonl")] == ["no-term"]
    manifest = json.loads((folder / "MedTEBSTS" / "manifest.json").read_text())
    assert manifest["rewriter"]["model"] == "writer"
    assert "base_url" not in json.dumps(manifest)


def test_bad_rewrites_are_counted_and_not_used(given):
    def lazy(messages):
        data = rules.read_input(messages)
        good = rules.rewritten(messages)
        term = data["origin"]
        if term == "高血压":
            good["positive"] = data["query_pairs"]["origin"]  # the term was not replaced
        elif term == "糖尿病":
            good["negative-1"] = data["query_pairs"]["replace"] + "？"  # the intent is the same
        elif term == "发烧":
            return "抱歉，我无法回答。"
        elif term == "近视":
            good["negative-1"] = good["negative-2"] = "这是一句话。"
        return json.dumps(good, ensure_ascii=False)

    with serving(lazy) as url:
        report = make(given, url)
    assert report.dropped == {"failed-no-json": 5, "no-term": 1}
    assert report.rewrites["positive"]["term-missing"] == 5
    assert report.rewrites["negative-1"] == {"good": 25, "no-question": 5, "unchanged": 5}
    rows = lines(given[2] / "sts" / "rewrites.jsonl")
    assert len(rows) == 35
    for row in rows:
        assert row["use"] != "test" or "dropped" not in row
        assert row["origin"] != "高血压" or row["dropped"] == {"positive": "term-missing"}
    # None of their queries has all rewrites, so they train: without a positive nothing, without a negative
    # among the pairs.
    assert {row["use"] for row in rows if row["origin"] in ("高血压", "近视")} == {"train"}
    triples, pairs = (lines(given[2] / "train" / name) for name in ("sts.jsonl", "sts-pairs.jsonl"))
    assert not any("高血压" in row["query"] for row in (*triples, *pairs))
    assert len(pairs) == 5
    assert all("近视" in row["query"] and "negatives" not in row for row in pairs)
    assert report.statistics["positive dropped, term-missing"] == 5
    assert report.statistics["training queries without a positive"] == 5


@pytest.mark.slow
def test_faults_and_further_runs_change_nothing(given, tmp_path):
    with serving(answer) as url:
        make(given, url, out=tmp_path / "clean", journal=tmp_path / "clean.sqlite")
    endpoint = FaultEndpoint(answer=answer, rate=0.15, answers=("invalid", "refusal"), hang=0.2)
    with running(endpoint) as url:
        # A prompt with two bad answers has failed until it is requested again.
        for number in range(10):
            report = make(given, url, out=tmp_path / f"{number}", retry_failed=True)
            if not number:
                first = report
            if report.dropped == {"no-term": 1}:
                break
    assert any(reason.startswith("failed-") for reason in first.dropped)
    assert endpoint.faults["429"] > 0
    assert files(report.folder) == files(tmp_path / "clean")
    # The server is gone: all is in the journal.
    last = make(given, "http://127.0.0.1:9/v1", out=tmp_path / "last")
    assert (last.bought, last.known) == (0, len(QUERIES))
    assert files(tmp_path / "last") == files(tmp_path / "clean")


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_files_and_pays_only_once(given, tmp_path):
    llm = tmp_path / "llm.yaml"

    def run(url):
        llm.write_text(yaml.safe_dump({"llm": llm_at(url).model_dump()}), encoding="utf-8")
        code = (
            "import sys, typer\nfrom medteb_mteb.commands.sts import sts\n"
            "app = typer.Typer(); app.command()(sts); app(sys.argv[1:])"
        )
        options = ["--name", "clinic", "--license", "cc-by-4.0", "--test", "0.4", "--threshold", "0.9"]
        paths = [str(path) for path in given]
        args = [*paths, "--llm", str(llm), *options, "--already-anonymous", "-q"]
        return subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True)

    endpoint = FaultEndpoint(answer=answer, latency=0.1, capacity=2)
    with running(endpoint) as url:
        process = run(url)
        deadline = time.monotonic() + 60
        while endpoint.made < len(QUERIES) // 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert 0 < endpoint.made < len(QUERIES)
        assert not given[2].exists()
        process = run(url)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert endpoint.made == len(QUERIES)  # each was paid for once
    with serving(answer) as url:
        report = make(given, url, out=tmp_path / "clean", journal=tmp_path / "clean.sqlite")
    assert report.bought == len(QUERIES)
    assert files(given[2]) == files(tmp_path / "clean")


def test_sts_and_assemble_share_a_folder_in_any_order(given, tmp_path):
    texts = {f"q{i}": Text(f"q{i}", text) for i, text in enumerate(QUERIES)}
    documents = {f"d{i}": Text(f"d{i}", f"{text}，请遵医嘱。") for i, text in enumerate(QUERIES)}
    labels = [
        Label(f"q{i}", f"d{j % len(QUERIES)}", int(i == j)) for i in range(len(QUERIES)) for j in (i, i + 1)
    ]

    def both(out, order):
        for step in order:
            if step == "sts":
                with serving(answer) as url:
                    make(given, url, out=out)
            else:
                assemble(
                    labels, texts, documents, out, Assembly("clinic", "cc-by-4.0", test=10, threshold=0.9)
                )
        return files(out)

    one = both(tmp_path / "one", ("sts", "assemble"))
    assert both(tmp_path / "two", ("assemble", "sts")) == one
    assert {name.split("/")[0] for name in one if not name.startswith(".")} == {
        "MedTEBRetrieval",
        "MedTEBReranking",
        "MedTEBSTS",
        "train",
        "sts",
    }
    with serving(answer) as url, pytest.raises(BuildError, match="is not empty: it holds MedTEBSTS"):
        make(given, url, out=tmp_path / "one")


def test_texts_that_are_not_anonymised_are_not_sent(given):
    with running(FaultEndpoint(answer=answer)) as url:
        endpoint = llm_at(url, price_in=1.0, price_out=2.0, budget=100)
        with pytest.raises(BuildError, match="40 of 40 queries have not been anonymised"):
            sts(*given, endpoint, HOW, show_progress=False)
        estimated = estimate(*given, endpoint, HOW)
        assert (estimated.queries, estimated.entries, estimated.dropped) == (41, 8, {"no-term": 1})
        assert (estimated.cost.requests, estimated.cost.known) == (40, 0)
        assert estimated.cost.cost > 0
        assert not list(given[2].parent.glob("*.sqlite"))
        make(given, url)
        assert estimate(*given, endpoint, HOW).cost.requests == 0


def test_a_budget_stops_it_and_a_larger_one_resumes(given):
    with running(FaultEndpoint(answer=answer)) as url:
        small = llm_at(url, budget_tokens=10_000, concurrency=1)
        stopped = sts(*given, small, HOW, already_anonymous=True, show_progress=False)
        assert not stopped.complete
        assert stopped.stopped
        assert 0 < stopped.bought < 40
        assert not given[2].exists()
        report = make(given, url)
    assert report.known == stopped.bought
    assert report.bought == 40 - stopped.bought


def test_an_empty_or_constant_test_is_refused(given):
    with serving(answer) as url:
        with pytest.raises(BuildError, match="The test is empty"):
            make(given, url, StsSettings("c", "mit", test=2))
        with pytest.raises(BuildError, match="no correlation exists"):
            make(given, url, StsSettings("c", "mit", test=0.4, threshold=0.9, probabilities=(1e-9, 0.5, 0.5)))
        assert files(given[2]) == {".lock": b""}
    other = given[0].with_name("other.tsv")
    other.write_text("origin\treplace\n骨折\t断骨\n")
    with pytest.raises(BuildError, match=r"None of 41 queries can be rewritten \(no-term 41\)"):
        estimate(other, given[1], given[2], llm_at("http://127.0.0.1:9/v1"), HOW)


def run_command(*arguments):
    app = typer.Typer()
    app.command()(command)
    return app([*map(str, arguments)], standalone_mode=False)


@pytest.fixture
def options(given):
    def write(url, **settings):
        file = given[2].with_name("llm.yaml")
        file.write_text(yaml.safe_dump({"llm": llm_at(url, **settings).model_dump()}), encoding="utf-8")
        return [*given, "--llm", file, "--name", "clinic", "--license", "cc-by-4.0", "--test", "0.4", "-q"]

    return write


def test_the_command_estimates_builds_and_reuses_bought_answers(given, options, capsys):
    with running(FaultEndpoint(answer=answer)) as url:
        args = [*options(url), "--threshold", "0.9"]
        run_command(*args, "--dry-run")
        assert "40 requests" in capsys.readouterr().out
        run_command(*args, "--dry-run", "--json")
        assert json.loads(capsys.readouterr().out)["cost"]["requests"] == 40
        halves = ["--already-anonymous", "--probabilities", "1/2, 0.25,0.25"]
        run_command(*args, *halves, "--json")
        report = json.loads(capsys.readouterr().out)
    assert report["complete"]
    assert report["edition"]["counts"] == {"test": 15}
    assert report["rewrites"]["positive"]["good"] + report["rewrites"]["positive"].get("length", 0) == 40
    kinds = Counter(row.get("drawn") for row in lines(given[2] / "sts" / "rewrites.jsonl"))
    assert kinds["positive"] > 3
    # Training queries are left out, and other data are made from the same answers.
    out = given[2].with_name("other")
    trained = given[2] / "train" / "sts.jsonl"
    args[2] = out
    run_command(*args, "--already-anonymous", "--against", trained, "--seed", "7")
    printed = capsys.readouterr().out
    assert "0 new, 40 from the journal" in printed
    before = {row["query"] for row in lines(trained)}
    assert before.isdisjoint(row["sentence1"] for row in lines(out / "MedTEBSTS" / "test.jsonl"))


def test_the_command_stops_with_exit_code_1(options, capsys):
    with running(FaultEndpoint(answer=answer)) as url:
        # typer gives the code back where it is not standalone.
        assert run_command(*options(url, budget_tokens=10_000), "--already-anonymous") == 1
    captured = capsys.readouterr()
    assert "nothing is written yet" in captured.out
    assert "Run the same command again to resume" in captured.err


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "1/0,0,1"])
def test_invalid_probabilities_are_refused(options, text):
    with pytest.raises(UserError, match="three comma-separated numbers"):
        run_command(*options("http://127.0.0.1:9/v1"), "--probabilities", text)


@pytest.mark.slow
def test_mteb_scores_models_on_it(given, monkeypatch):
    import mteb

    with serving(answer) as url:
        report = make(given, url)
    monkeypatch.setenv("MEDTEB_DATA", str(given[2]))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tasks = mteb.get_tasks(tasks=["MedTEBSTS"])
    (result,) = mteb.evaluate(mteb.get_model("medteb/mar-mini"), tasks, cache=None).task_results
    assert result.dataset_revision == report.edition.digest
    assert -1 <= result.get_score() <= 1


def test_the_edition_records_its_writer_and_its_sources(given):
    source = TextSource(name="clinic", licence="cc-by-4.0", url="https://example.org")
    with serving(answer) as url:
        report = make(given, url, sources=[source])
    provenance = json.loads((report.edition.path / "provenance.json").read_text("utf-8"))
    (writer,) = provenance["writers"]
    assert (writer["name"], writer["model"]) == ("writer", "writer")
    assert writer["answered"]
    assert provenance["sources"] == report.edition.extra["sources"] == [source.to_json()]
    assert "https://example.org" in (report.edition.path / "README.md").read_text("utf-8")
