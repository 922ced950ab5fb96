from __future__ import annotations

import json
import sqlite3

import pytest
from filelock import FileLock

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import JournalError, estimate, judge
from medteb_mteb.curation.judge.controls import CONTROLS
from medteb_mteb.curation.judge.log import read_entry

GRADES = set("SABCD")


def rows(folder, name="judgements"):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]


def run(source, config, out="out", **options):
    options = {"already_anonymous": True, "show_progress": False} | options
    return judge(*source.paths, source.folder / out, config, **options)


def expected(source, rule, model="rule-words"):
    """Grade every pair directly, without a server."""
    queries = {row["_id"]: row["text"] for row in source.rows("queries")}
    documents = {row["_id"]: f"{row['title']}\n{row['text']}" for row in source.rows("documents")}
    return {
        (row["query-id"], name): rule(model, queries[row["query-id"]], documents[name])
        for row in source.rows("pools")
        for name in row["corpus-ids"]
    }


def test_every_pair_gets_the_judges_grade(make_input, make_server, endpoint, judges_of):
    source, server = make_input(), endpoint()
    report = run(source, judges_of(make_server(server), "rule-words", "rule-strict"))
    from rule_judges import grade

    for name, model in (("words", "rule-words"), ("strict", "rule-strict")):
        grades = {
            (row["query-id"], row["corpus-id"]): row["grade"]
            for row in rows(report.folder)
            if row["judge"] == name
        }
        assert grades == expected(source, grade, model)
    keys = [(row["query-id"], row["corpus-id"], row["judge"]) for row in rows(report.folder)]
    assert keys == sorted(keys)
    assert len(keys) == 2 * source.pairs
    assert report.complete
    assert rows(report.folder, "failed") == []
    assert set(server.sold.values()) == {1}
    assert sum(server.sold.values()) == 2 * source.pairs
    account = report.judges[0].account
    assert (account.answers, account.controls, account.controls_failed) == (9, 9, 0)
    assert account.tokens_in == sum(len(p) for p, b in zip(server.prompts, server.bodies, strict=True)
                                    if b["model"] == "rule-words")  # fmt: skip


def test_no_judgement_is_paid_for_twice_even_by_another_build(make_input, make_server, endpoint, judges_of):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server))
    run(source, config)
    made = server.made
    again = run(source, config)
    other = run(source, config, out="other")
    assert server.made == made
    assert again.complete
    assert again.judges[0].outcome.grades == other.judges[0].outcome.grades
    assert (other.judges[0].bought, other.judges[0].known) == (0, source.pairs)
    # A pool with a new document costs that document alone, whatever batch it would have been in.
    documents = source.rows("documents")
    source.rewrite("documents", [*documents, {"_id": "new", "text": "高血压患者少吃盐"}])
    pools = source.rows("pools")
    source.rewrite("pools", [{**pool, "corpus-ids": [*pool["corpus-ids"], "new"]} for pool in pools])
    more = run(source, config, out="more")
    assert more.judges[0].bought == 3
    assert set(server.sold.values()) == {1}


def test_texts_that_are_equal_are_judged_once(make_input, make_server, endpoint, judges_of):
    source, server = make_input(2, 5), endpoint()
    documents = source.rows("documents")
    source.rewrite("documents", [*documents, {**documents[0], "_id": "twin"}])
    queries = source.rows("queries")
    source.rewrite("queries", [*queries, {**queries[0], "_id": "twin"}])
    pools = source.rows("pools")
    source.rewrite(
        "pools",
        [{**p, "corpus-ids": [*p["corpus-ids"], "twin"]} for p in pools]
        + [{"query-id": "twin", "corpus-ids": ["d001", "twin"]}],
    )
    report = run(source, judges_of(make_server(server)))
    assert len(rows(report.folder)) == 2 * 6 + 2
    assert sum(server.sold.values()) == 2 * 5


def test_only_settings_that_change_answers_buy_new_judgements(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    url = make_server(server)
    run(source, judges_of(url))
    run(source, judges_of(url, temperature=0.5), out="warm")
    run(source, judges_of(url, variant="q4"), out="variant")
    run(source, judges_of(url, extra={"top_p": 0.5}), out="extra")
    assert set(server.sold.values()) == {4}
    assert server.bodies[-1]["top_p"] == 0.5
    # How they are asked for is not part of it.
    run(source, judges_of(url, passages=1, concurrency=1, seed=7, answer="text", retries=1), out="same")
    assert set(server.sold.values()) == {4}


def test_a_finished_folder_does_not_take_another_check_of_positives(
    make_input, make_server, endpoint, judges_of
):
    source, url = make_input(1, 4), make_server(endpoint())
    run(source, judges_of(url))
    for changed in ({"check_positives": True}, {"check_positives": True, "checks": ["如何更换汽车轮胎？"]}):
        with pytest.raises(BuildError, match="holds a step judge with other check"):
            run(source, judges_of(url, **changed))


def test_order_is_random_per_judge_and_seeded(make_input, make_server, endpoint, judges_of):
    source = make_input(1, 12)
    orders = []
    for settings in ({}, {}, {"seed": 1}):
        server = endpoint()
        config = judges_of(make_server(server), "rule-words", "rule-strict", passages=20, **settings)
        run(source, config, out=f"out{len(orders)}", journal=source.folder / f"{len(orders)}.sqlite")
        by_model = {}
        for body, prompt in zip(server.bodies, server.prompts, strict=True):
            by_model[body["model"]] = [prompt.index(f"第{i}条") for i in range(12)]
        orders.append(
            {model: sorted(range(12), key=places.__getitem__) for model, places in by_model.items()}
        )
    assert orders[0] == orders[1]
    assert len({tuple(order) for o in orders for order in o.values()}) == 4
    assert list(range(12)) not in orders[0].values()


def test_private_texts_are_not_sent(make_input, make_server, endpoint, judges_of):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server))
    message = r"3 of 3 queries and 12 of 12 documents have not been anonymised.*--already-anonymous"
    with pytest.raises(BuildError, match=message):
        run(source, config, already_anonymous=False)
    assert server.arrived == 0
    assert not (source.folder / "judgements.sqlite").exists()


def test_keys_come_from_the_environment_and_are_kept_nowhere(
    make_input, make_server, endpoint, judges_of, monkeypatch, caplog
):
    source, server = make_input(1, 4), endpoint()
    config = judges_of(make_server(server), api_key_env="MY_JUDGE_KEY")
    with pytest.raises(BuildError, match="set MY_JUDGE_KEY"):
        run(source, config)
    monkeypatch.setenv("MY_JUDGE_KEY", "sk-very-secret")
    caplog.set_level("DEBUG")
    for name in ("openai", "httpx", "httpx2"):
        caplog.set_level("DEBUG", logger=name)
    run(source, config)
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sk-very-secret"}
    for path in source.folder.rglob("*"):
        if path.is_file() and path not in source.paths:
            data = path.read_bytes()
            assert b"secret" not in data, path
            assert "高血压".encode() not in data, path
    assert "secret" not in caplog.text
    assert "高血压" not in caplog.text


def test_a_budget_stops_cleanly_and_a_larger_one_resumes(
    make_input, make_server, endpoint, judges_of, content
):
    source, server = make_input(3, 12), endpoint()
    url = make_server(server)
    prices = {"price_in": 1000.0, "price_out": 1000.0, "concurrency": 2}
    whole = run(source, judges_of(url, **prices), out="whole", journal=source.folder / "whole.sqlite")
    cost = whole.judges[0].account.cost
    server.sold.clear()
    report = run(source, judges_of(url, budget=cost * 0.7, **prices))
    (result,) = report.judges
    assert not report.complete
    assert "is spent" in result.stopped
    assert 0 < result.account.cost <= cost * 0.7
    assert result.bought == source.pairs - result.outcome.left
    assert 0 < result.outcome.left < source.pairs
    assert not (report.folder / "judgements.jsonl").exists()
    assert not (report.folder / "manifest.json").exists()
    made = server.made
    assert not run(source, judges_of(url, budget=cost * 0.7, **prices)).complete
    assert server.made == made
    report = run(source, judges_of(url, budget=cost * 2, **prices))
    assert report.complete
    assert set(server.sold.values()) == {1}
    assert content(report.folder) == content(whole.folder)
    tokens = run(source, judges_of(url, budget_tokens=10, variant="x"), out="tokens")
    assert "of its 10 tokens" in tokens.judges[0].stopped


def test_a_dry_run_estimates_and_sends_nothing(make_input, make_server, endpoint, judges_of):
    source, server = make_input(3, 12), endpoint()
    config = judges_of(make_server(server), price_in=2.0, price_out=8.0)
    journal = source.folder / "judgements.sqlite"
    (estimated,) = estimate(*source.paths, config, journal=journal)
    assert server.arrived == 0
    assert not journal.exists()
    assert (estimated.judgements, estimated.known, estimated.requests) == (36, 0, 9)
    run(source, config)
    (prompt_bytes,) = {sum(len(p.encode()) for p in server.prompts)}
    assert estimated.tokens_in >= prompt_bytes / 3
    assert estimated.cost == pytest.approx((estimated.tokens_in * 2 + estimated.tokens_out * 8) / 1e6)
    assert server.made == estimated.requests
    (after,) = estimate(*source.paths, config, journal=journal)
    assert (after.known, after.requests, after.cost) == (36, 0, 0)
    assert after.spent > 0


def test_two_builds_at_once_cannot_share_a_journal_or_a_folder(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    config = judges_of(make_server(server))
    run(source, config, out="first")
    before = (source.folder / "judgements.sqlite").read_bytes()
    with FileLock(source.folder / "judgements.sqlite.lock"):
        with pytest.raises(JournalError, match="Another process is writing judgements to"):
            run(source, config)
        assert estimate(*source.paths, config, journal=source.folder / "judgements.sqlite")[0].known == 4
    with (
        FileLock(source.folder / "out" / ".lock"),
        pytest.raises(BuildError, match="Another process is writing"),
    ):
        run(source, config)
    assert (source.folder / "judgements.sqlite").read_bytes() == before
    assert run(source, config).complete


def test_a_folder_of_another_judging_is_refused(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    url = make_server(server)
    run(source, judges_of(url))
    with pytest.raises(BuildError, match="other settings"):
        run(source, judges_of(url, temperature=1.0))
    source.rewrite("pools", [{"query-id": "q0", "corpus-ids": ["d000"]}])
    with pytest.raises(BuildError, match="other input"):
        run(source, judges_of(url))


@pytest.mark.parametrize("content", [b"{", b"{}"])
def test_a_damaged_manifest_is_named_and_written_again_from_the_journal(
    make_input, make_server, endpoint, judges_of, content
):
    source, server = make_input(), endpoint()
    config = judges_of(make_server(server), "rule-words")
    manifest = run(source, config).folder / "manifest.json"
    whole, asked = manifest.read_bytes(), len(server.prompts)
    manifest.write_bytes(content)
    with pytest.raises(BuildError, match=r"manifest\.json is damaged"):
        run(source, config)
    manifest.unlink()
    run(source, config)
    assert (manifest.read_bytes(), len(server.prompts)) == (whole, asked)


def test_an_output_that_cannot_be_written_is_reported(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    config = judges_of(make_server(server))
    (source.folder / "file").write_text("")
    with pytest.raises(BuildError, match="cannot be written to"):
        run(source, config, out="file/out")
    with pytest.raises(JournalError, match="cannot be written to"):
        run(source, config, journal=source.folder / "file" / "journal.sqlite")
    assert server.arrived == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query-id": "q9", "corpus-ids": ["d000"]}, "there is no query 'q9'"),
        ({"query-id": "q0", "corpus-ids": ["d999"]}, "there is no document 'd999'"),
        ({"query-id": "q0"}, "expected 'query-id' and a list 'corpus-ids'"),
        ({"query-id": "q0", "corpus-ids": "d000"}, "expected 'query-id' and a list 'corpus-ids'"),
    ],
)
def test_unusable_pools_are_refused(make_input, judges_of, row, message):
    source = make_input(1, 2)
    source.rewrite("pools", [row])
    with pytest.raises(ValueError, match=message):
        run(source, judges_of("http://127.0.0.1:9"))


def test_pools_are_read_from_a_folder_and_empty_ones_are_refused(
    make_input, make_server, endpoint, judges_of
):
    source, server = make_input(2, 3), endpoint()
    folder = source.folder / "pools"
    folder.mkdir()
    (folder / "stats.jsonl").write_text('{"other": 1}\n')
    source.pools.rename(folder / "top_ranked.jsonl")
    config = judges_of(make_server(server))
    report = judge(
        source.queries, source.documents, folder, source.folder / "out", config,
        already_anonymous=True, show_progress=False,
    )  # fmt: skip
    assert report.pairs == 6
    (folder / "top_ranked.jsonl").write_text('{"query-id": "q0", "corpus-ids": []}\n')
    with pytest.raises(BuildError, match="no pairs to judge"):
        judge(
            source.queries, source.documents, folder, source.folder / "none", config, already_anonymous=True
        )


def test_it_runs_inside_a_running_loop(make_input, make_server, endpoint, judges_of):
    import asyncio

    source, server = make_input(1, 4), endpoint()
    config = judges_of(make_server(server))

    async def notebook():
        return run(source, config)

    assert asyncio.run(notebook()).complete


def test_the_journal_holds_digests_and_letters(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    run(source, judges_of(make_server(server)))
    db = sqlite3.connect(source.folder / "judgements.sqlite")
    entries = [read_entry(content) for (content,) in db.execute("SELECT entry FROM log")]
    assert {chr(grade) for entry in entries for grade in entry.grades} <= GRADES
    assert all(entry.answered for entry in entries)
    (described,) = db.execute("SELECT description FROM settings").fetchone()
    assert json.loads(described)["model"] == "rule-words"
    assert all(control not in described for control in CONTROLS)
    db.close()
