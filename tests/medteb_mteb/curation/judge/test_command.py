"""The command `medteb judge` and the file of its judges."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
import yaml
from fault_server import ROOT, rules

from medteb_mteb.commands.judge import judge
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import Judges
from medteb_mteb.curation.judge import judge as judging
from medteb_mteb.curation.judge.journal import JudgementJournal


def medteb_judge(*arguments):
    app = typer.Typer()
    app.command()(judge)
    return app([*map(str, arguments)], standalone_mode=False)


@pytest.fixture
def settings(make_input, make_server, endpoint):
    """Input, the server, and a YAML file of two judges."""
    source, server = make_input(), endpoint()
    url = make_server(server)
    entries = [
        {
            "name": "words",
            "model": "rule-words",
            "base_url": url,
            "price_in": 1.0,
            "budget": 10,
            "backoff": 0.01,
        },
        {"name": "strict", "model": "rule-strict", "base_url": url, "backoff": 0.01, "retries": 1},
    ]
    file = source.folder / "judges.yaml"
    file.write_text(yaml.safe_dump({"judges": entries, "check_positives": False}), encoding="utf-8")
    return source, server, file


def test_the_command_estimates_and_judges(settings, capsys):
    source, server, file = settings
    options = ["--judges", file, "--already-anonymous", "-q"]
    medteb_judge(*source.paths, source.folder / "out", *options, "--dry-run")
    assert "in all: 12 requests" in capsys.readouterr().out
    assert server.arrived == 0
    medteb_judge(*source.paths, source.folder / "out", *options, "--dry-run", "--json")
    assert [e["judgements"] for e in json.loads(capsys.readouterr().out)] == [36, 36]
    medteb_judge(*source.paths, source.folder / "out", *options)
    out = capsys.readouterr().out
    assert "36 new, 0 from the journal" in out
    assert str(source.folder / "out" / "judgements.jsonl") in out
    medteb_judge(*source.paths, source.folder / "two", *options, "--json")
    report = json.loads(capsys.readouterr().out)
    assert [(j["judge"], j["bought"], j["known"]) for j in report["judges"]] == [
        ("words", 0, 36),
        ("strict", 0, 36),
    ]
    assert (source.folder / "judgements.sqlite").is_file()


def test_missing_answers_are_exit_code_1(settings, capsys):
    source, server, file = settings
    server.instead.append(lambda c: rules.Answer(500, {}) if c.body["model"] == "rule-strict" else None)
    assert (
        medteb_judge(*source.paths, source.folder / "out", "--judges", file, "--already-anonymous", "-q") == 1
    )
    assert "strict stopped" in capsys.readouterr().err


def test_a_run_with_repair_resumes(settings, capsys, monkeypatch):
    source, server, file = settings
    monkeypatch.setenv("MEDTEB_JOURNAL", str(source.folder / "mine.sqlite"))
    options = ["--judges", file, "--already-anonymous", "-q"]
    medteb_judge(*source.paths, source.folder / "out", *options)
    path = source.folder / "mine.sqlite"
    path.write_bytes(b"\0" * 4096 + path.read_bytes()[4096:])
    with pytest.raises(BuildError, match="--repair"):
        medteb_judge(*source.paths, source.folder / "two", *options)
    medteb_judge(*source.paths, source.folder / "two", *options, "--repair")
    assert "72 judgements" in capsys.readouterr().err
    with JudgementJournal.snapshot(path) as journal:
        assert journal.size() == 72
    assert set(server.sold.values()) == {1}


def test_the_example_of_the_docs_is_right():
    page = (ROOT / "docs" / "how-to" / "judge.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in page.split("```yaml\n")[1:]]
    assert len(blocks) >= 2
    for block in blocks:
        assert Judges.model_validate(yaml.safe_load(block)).judges


def test_the_rule_based_judges_run_as_they_stand(make_input, judges_of):
    script = ROOT / "examples" / "rule_judges.py"
    server = subprocess.Popen([sys.executable, str(script), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1]
        source = make_input()
        documents = source.rows("documents")
        for i, row in enumerate(documents):
            row["text"] += "平时注意休息，定期到医院复查。" * i
        source.rewrite("documents", documents)
        config = judges_of(url, *rules.MODELS)
        report = judging(
            *source.paths, source.folder / "out", config, already_anonymous=True, show_progress=False
        )
    finally:
        server.terminate()
        server.wait()
    assert report.complete
    counts = [tuple(result.outcome.grades.values()) for result in report.judges]
    assert len(set(counts)) == 3  # each has a bias of its own
    assert all(sum(count) == source.pairs and max(count) < source.pairs for count in counts)
