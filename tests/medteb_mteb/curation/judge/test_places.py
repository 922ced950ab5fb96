"""Places of documents in prompts, as they are recorded with the grades."""

from __future__ import annotations

import json
import re
import sqlite3

from tests.medteb_mteb.curation.judge.earlier import as_version_1

from medteb_mteb.curation.judge import judge

PASSAGE = re.compile(r'<passage-\w+ id="[^"]+">\n(.*?)\n</passage', re.DOTALL)
QUERY = re.compile(r"<query-\w+>\n(.*?)\n</query", re.DOTALL)


def run(source, config, out):
    report = judge(*source.paths, source.folder / out, config, already_anonymous=True, show_progress=False)
    return report.folder


def places(folder):
    rows = [json.loads(line) for line in (folder / "places.jsonl").read_text("utf-8").splitlines()]
    return {(row["judge"], row["query-id"], row["corpus-id"]): (row["place"], row["of"]) for row in rows}


def test_places_are_those_of_the_prompts_that_were_sent(make_input, make_server, endpoint, judges_of):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server), "rule-words", "rule-strict")
    folder = run(source, config, "out")
    queries = {row["text"]: row["_id"] for row in source.rows("queries")}
    documents = {f"{row['title']}\n{row['text']}": row["_id"] for row in source.rows("documents")}
    sent = {}
    for prompt, body in zip(server.prompts, server.bodies, strict=True):
        texts = PASSAGE.findall(prompt)
        query = queries.get(QUERY.search(prompt)[1])
        name = body["model"].removeprefix("rule-")
        sent |= {
            (name, query, documents[text]): (number, len(texts))
            for number, text in enumerate(texts, start=1)
            if text in documents and query is not None
        }
    assert places(folder) == sent
    assert len(sent) == 2 * source.pairs
    # Another build reads them in the journal.
    number = len(server.prompts)
    assert places(run(source, config, "again")) == sent
    assert len(server.prompts) == number


def test_places_of_an_earlier_version_are_still_read(make_input, make_server, endpoint, judges_of):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server), "rule-words")
    expected = places(run(source, config, "out"))
    assert len(expected) == source.pairs
    as_version_1(source.folder / "judgements.sqlite")
    number = len(server.prompts)
    assert places(run(source, config, "later")) == expected
    assert len(server.prompts) == number


def test_a_journal_of_an_earlier_version_has_no_places(make_input, make_server, endpoint, judges_of):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server), "rule-words")
    before = (run(source, config, "out") / "judgements.jsonl").read_bytes()
    as_version_1(source.folder / "judgements.sqlite")
    db = sqlite3.connect(source.folder / "judgements.sqlite")
    db.execute("DROP TABLE places")
    db.commit()
    db.close()
    folder = run(source, config, "later")
    assert (folder / "judgements.jsonl").read_bytes() == before
    assert places(folder) == {}
