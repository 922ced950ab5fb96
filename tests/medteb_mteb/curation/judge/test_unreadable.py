"""Tests of unreadable answers, and of a judge that gives no others."""

from __future__ import annotations

import json
import sqlite3

import pytest
from fault_server import rules
from typer.testing import CliRunner

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import judge
from medteb_mteb.curation.judge.schema import Verdict
from medteb_mteb.curation.labels.consensus import ConsensusRule
from medteb_mteb.curation.labels.labelling import write_labels

PROSE = "我觉得三个段落都很相关，很难用一个字母来表示。"


def run(source, config, out="out", **options):
    options = {"already_anonymous": True, "show_progress": False} | options
    return judge(*source.paths, source.folder / out, config, **options)


def saying(text, model="rule-strict", when=lambda prompt: True):
    """Return a handler that answers with a fixed text in the name of one model."""

    def special(call):
        if call.body["model"] != model or not when(call.body["messages"][-1]["content"]):
            return None
        return rules.Answer(200, rules.completion(model, text, (10, 10)))

    return special


def test_a_judge_that_fails_on_everything_stops_the_judging(
    make_input, make_server, endpoint, judges_of, content
):
    source, server = make_input(3, 6), endpoint()
    server.instead.append(saying(PROSE))
    config = judges_of(make_server(server), "rule-words", "rule-strict", unreadable=None)
    report = run(source, config)
    words, strict = report.judges
    assert not report.complete
    assert words.stopped == ""
    assert "18 of 18 judgements failed (not-json 18)" in strict.stopped
    assert PROSE in strict.stopped
    assert "max_failed" in strict.stopped
    assert not (report.folder / "judgements.jsonl").exists()
    arrived = server.arrived
    assert run(source, config).judges[1].stopped == strict.stopped
    assert server.arrived == arrived
    server.instead.clear()
    report = run(source, config, retry_failed=True)
    assert report.complete
    clean = run(source, config, out="clean", journal=source.folder / "clean.sqlite")
    assert content(report.folder) == content(clean.folder)


def test_the_command_says_why_a_judge_was_stopped(make_input, make_server, endpoint, judges_of):
    from medteb_mteb.cli import app

    source, server = make_input(1, 3), endpoint()
    server.instead.append(saying(PROSE, "rule-words"))
    url = make_server(server)
    file = source.folder / "judges.yaml"
    file.write_text(f"judges: [{{name: words, model: rule-words, base_url: {url!r}}}]")
    arguments = ["judge", *map(str, source.paths), str(source.folder / "out"), "--judges", str(file)]
    result = CliRunner().invoke(app, [*arguments, "--already-anonymous", "-q"])
    assert result.exit_code == 1
    assert "words stopped: 3 of 3 judgements failed" in result.output
    assert PROSE in result.output


@pytest.mark.parametrize(("allowed", "complete"), [(0.2, False), (0.25, True)])
def test_max_failed_bounds_the_failed_share(make_input, make_server, endpoint, judges_of, allowed, complete):
    source, server = make_input(4, 3), endpoint()
    bad = source.rows("queries")[1]["text"]
    server.instead.append(saying(PROSE, "rule-words", lambda prompt: bad in prompt))
    report = run(source, judges_of(make_server(server), max_failed=allowed))
    assert report.complete is complete
    assert report.judges[0].outcome.failed == {"not-json": 3}


def test_too_many_unreadable_answers_in_a_row_stop_a_judge(
    make_input, make_server, endpoint, judges_of, content
):
    source, server = make_input(10, 4), endpoint()
    server.instead.append(saying(PROSE))
    config = judges_of(make_server(server), "rule-words", "rule-strict", unreadable=5, concurrency=1)
    report = run(source, config)
    words, strict = report.judges
    assert (words.outcome.left, words.stopped) == (0, "")
    assert "5 answers in a row are of no use, the last one: not-json" in strict.stopped
    assert PROSE in strict.stopped
    assert strict.account.answers == 5
    server.instead.clear()
    report = run(source, config)  # what was not asked for is asked for, without --retry-failed
    assert strict.outcome.left > 30
    assert report.judges[1].outcome.left == 0
    assert sum(body["model"] == "rule-strict" for body in server.bodies) < 40


def test_a_usable_answer_in_between_restarts_the_count(make_input, make_server, endpoint, judges_of):
    source, server = make_input(6, 4), endpoint()
    numbers = iter(range(1000))
    server.instead.append(saying(PROSE, "rule-words", lambda prompt: next(numbers) % 3 > 0))
    config = judges_of(make_server(server), unreadable=3, concurrency=1, max_failed=1.0)
    assert run(source, config).judges[0].stopped == ""


def test_a_better_reader_reads_answers_already_paid_for(
    make_input, make_server, endpoint, judges_of, content, monkeypatch
):
    source, server = make_input(3, 6), endpoint()
    config = judges_of(make_server(server), "rule-words", "rule-strict", unreadable=None)
    with monkeypatch.context() as patch:
        patch.setattr(
            "medteb_mteb.curation.judge.worker.read_answer",
            lambda content, keys, **ending: Verdict(
                {}, dict.fromkeys(range(len(keys)), "not-json"), "not-json"
            ),
        )
        report = run(source, config)
    assert [sum(result.outcome.grades.values()) for result in report.judges] == [0, 0]
    arrived = server.arrived
    report = run(source, config)
    assert report.complete
    assert server.arrived == arrived
    assert [result.details["read_again"] for result in report.judges] == [18, 18]
    clean = run(source, config, out="clean", journal=source.folder / "clean.sqlite")
    assert content(report.folder) == content(clean.folder)


def test_answers_are_not_kept_if_keep_answers_is_none(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 3), endpoint()
    server.instead.append(saying(PROSE, "rule-words"))
    config = judges_of(make_server(server), keep_answers="none")
    report = run(source, config)
    assert "3 of 3 judgements failed" in report.judges[0].stopped
    assert PROSE not in report.judges[0].stopped
    with sqlite3.connect(report.journal) as db:
        assert db.execute("SELECT count(*) FROM unread").fetchone() == (0,)


def test_an_answer_that_repeats_a_text_is_not_shown(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 3), endpoint()
    source.rewrite("queries", [{"_id": "q0", "text": "张三的高血压病历编号是多少，请查一下"}])
    server.instead.append(saying("查询是“张三的高血压病历编号是多少”，无法评级", "rule-words"))
    (result,) = run(source, judges_of(make_server(server))).judges
    assert "张三" not in result.stopped
    assert "characters that repeat a text" in result.stopped


def test_a_journal_of_an_earlier_version_is_used(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 3), endpoint()
    config = judges_of(make_server(server))
    report = run(source, config)
    with sqlite3.connect(report.journal) as db:
        db.execute("DROP TABLE unread")
    assert run(source, config, out="other").judges[0].known == 3


@pytest.mark.thorough
def test_labels_count_the_judges_that_were_asked(make_input, make_server, endpoint, judges_of):
    source, server = make_input(4, 3), endpoint()
    bad = source.rows("queries")[1]["text"]
    server.instead.append(saying(PROSE, "rule-strict", lambda prompt: bad in prompt))
    server.instead.append(saying(PROSE, "rule-words", lambda prompt: bad in prompt))
    config = judges_of(make_server(server), "rule-words", "rule-strict", "rule-generous", max_failed=0.5)
    folder = run(source, config).folder
    content = write_labels(folder, source.folder / "labels")
    assert content["labels"]["discarded: a judge is missing"] == 3
    assert sum(content["labels"].values()) == 12
    assert content["agreement"]["missing"] == {"generous": 0, "strict": 3, "words": 3}
    # If it were not counted, a judge without any grade would leave the others unanimous.
    rows = [json.loads(line) for line in (folder / "judgements.jsonl").read_text("utf-8").splitlines()]
    (folder / "judgements.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows if row["judge"] != "strict")
    )
    for path in (folder, folder / "judgements.jsonl"):
        with pytest.raises(BuildError, match=r"'strict' has graded nothing.*--retry-failed.*--judge"):
            write_labels(path, source.folder / "none")
    two = write_labels(folder, source.folder / "two", ConsensusRule(judges=("words", "generous")))
    assert two["agreement"]["missing"] == {"words": 3, "generous": 0}
