"""The model and day of every grade are recorded, but equal judgings may differ in them."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

import pytest
from tests.medteb_mteb.curation.judge.earlier import as_version_1

from medteb_mteb.curation.judge import judge, repair_journal
from medteb_mteb.curation.llm import origins


@pytest.fixture
def on(monkeypatch):
    """Sets the day on which answers come in."""

    def call(day):
        class Day(datetime):
            @classmethod
            def now(cls, tz=None):
                assert tz is UTC
                return cls(2026, 11, day, 23, 59, tzinfo=tz)

        monkeypatch.setattr(origins, "datetime", Day)

    return call


def as_model(endpoint, model, fingerprint=None):
    """Have an endpoint answer in the name of a model."""
    grade = endpoint._content

    async def content(call, name, draw):
        completion = dict(await grade(call, name, draw))
        return {**completion, "model": model, "system_fingerprint": fingerprint}

    endpoint._content = content


def run(source, config, out="out", **options):
    options = {"already_anonymous": True, "show_progress": False} | options
    return judge(*source.paths, source.folder / out, config, **options).folder


def answered(folder):
    content = json.loads((folder / "provenance.json").read_text("utf-8"))["judges"]
    return {name: one["answered"] for name, one in content.items()}, content


def test_the_answering_model_its_fingerprint_and_the_day_are_recorded(
    make_input, make_server, endpoint, judges_of, on
):
    source, server = make_input(), endpoint()
    as_model(server, "qwen3-2507\n", "fp_44")
    on(1)
    folder = run(source, judges_of(make_server(server), "rule-words"))
    by_judge, content = answered(folder)
    entry = {"date": "2026-11-01", "model": "qwen3-2507", "system_fingerprint": "fp_44"}
    assert by_judge == {"words": [{**entry, "pairs": source.pairs}]}
    settings = content["words"]["settings"]
    assert settings["model"] == "rule-words"  # as it was asked for
    assert len(settings["prompt"]) == 16


def test_a_judging_of_two_days_has_the_bytes_of_one(
    make_input, make_server, endpoint, judges_of, on, content
):
    source, server = make_input(4, 12), endpoint()
    url = make_server(server)
    every = source.rows("pools")
    source.rewrite("pools", every[:3])
    as_model(server, "old")
    on(1)
    run(source, judges_of(url, "rule-words"), "part")
    source.rewrite("pools", every)
    as_model(server, "new")
    on(3)
    folder = run(source, judges_of(url, "rule-words"))
    assert answered(folder)[0]["words"] == [
        {"date": "2026-11-01", "model": "old", "pairs": 36},
        {"date": "2026-11-03", "model": "new", "pairs": 12},
    ]
    on(9)
    again = run(source, judges_of(url, "rule-words"), "again", journal=source.folder / "other.sqlite")
    assert answered(again)[0]["words"] == [{"date": "2026-11-09", "model": "new", "pairs": 48}]
    assert content(again) == content(folder)


def test_journals_of_earlier_versions_have_grades_without_a_day(
    make_input, make_server, endpoint, judges_of, content
):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server), "rule-words")
    before = content(run(source, config))
    as_version_1(source.folder / "judgements.sqlite")
    with sqlite3.connect(source.folder / "judgements.sqlite") as db:
        db.executescript("DROP TABLE origins; DROP TABLE dated;")
    db.close()
    arrived = server.arrived
    folder = run(source, config, "later")
    assert server.arrived == arrived
    assert content(folder) == before
    assert answered(folder)[1]["words"] | {"settings": 0} == {
        "settings": 0,
        "answered": [],
        "undated": source.pairs,
    }


def test_an_answer_that_is_read_later_keeps_its_day(
    make_input, make_server, endpoint, judges_of, on, monkeypatch
):
    from medteb_mteb.curation.judge import unread, worker
    from medteb_mteb.curation.judge.schema import Verdict

    source, server = make_input(1, 3), endpoint()
    config = judges_of(make_server(server), "rule-words", max_failed=1.0)
    read = worker.verdict_of

    def blind(content, keys, controls, ending):
        return Verdict({}, dict.fromkeys(range(len(keys)), "not-json"))

    monkeypatch.setattr(worker, "verdict_of", blind)
    on(1)
    assert answered(run(source, config))[0] == {"words": []}
    monkeypatch.setattr(worker, "verdict_of", read)
    monkeypatch.setattr(unread, "verdict_of", read)
    on(5)
    arrived = server.arrived
    folder = run(source, config, retry_failed=True)
    assert server.arrived == arrived
    assert answered(folder)[0]["words"] == [{"date": "2026-11-01", "model": "rule-words", "pairs": 3}]


def test_a_repair_keeps_days(make_input, make_server, endpoint, judges_of, on):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server), "rule-words")
    on(1)
    run(source, config)
    repair_journal(source.folder / "judgements.sqlite")
    on(2)
    by_judge, _ = answered(run(source, config, "later"))
    assert by_judge["words"] == [{"date": "2026-11-01", "model": "rule-words", "pairs": source.pairs}]
