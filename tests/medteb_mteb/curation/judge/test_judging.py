"""Judging of pools through the step: settings, texts, the journal, refusals, costs."""

from __future__ import annotations

import json
import sys

import pytest
import rule_judges
import yaml

from mar_st.errors import MarError
from mar_st.options import validated
from medteb_mteb.curation.judge.judges import Judges, LearnedJudge
from medteb_mteb.curation.judge.material import read_pools
from medteb_mteb.curation.judge.prompt import prompt_version
from medteb_mteb.curation.judge.step import JUDGE, JudgeSettings
from medteb_mteb.curation.step import Estimate, fingerprint, perform


def step(source, judges, **settings):
    files = {name: source.path(name) for name in ("queries", "documents", "pools")}
    common = {"out": source.folder / "step", "already_anonymous": True}
    return JudgeSettings(judges=judges, **(files | common | settings))


def test_the_step_writes_all_pairs_once_and_asks_nothing_twice(make_source, make_server, endpoint, judges_of):
    source, server = make_source(4, 12), endpoint()
    judges = judges_of(make_server(server), "rule-words", "rule-strict", price_in=1.0)
    settings = step(source, judges)
    volumes = {"queries": Estimate(4, 80), "documents": Estimate(12, 600), "pools": Estimate(48, queries=4)}
    estimate = JUDGE.estimate(settings, volumes)
    record, kept = perform(JUDGE, settings)
    assert not kept
    assert record["counts"]["rows"] == source.pairs
    rows = source.result("step")
    order = [(row["query-id"], row["corpus-id"], row["judge"]) for row in rows]
    assert order == sorted(order)
    assert len(rows) == 2 * source.pairs
    for row in rows[:20]:
        query = next(q["text"] for q in source.rows("queries") if q["_id"] == row["query-id"])
        document = next(d for d in source.rows("documents") if d["_id"] == row["corpus-id"])
        text = f"{document['title']}\n{document['text']}"
        assert row["grade"] == rule_judges.grade(f"rule-{row['judge']}", query, text)
    assert estimate.requests == pytest.approx(server.made, rel=0.1)
    made = server.made
    sent = sum(len("".join(m["content"] for m in body["messages"]).encode()) / 3 for body in server.bodies)
    assert sent / 2 < estimate.prompt_tokens < 2 * sent
    assert estimate.cost == pytest.approx(estimate.prompt_tokens / 1e6)
    judge = record["provenance"]["judges"][0]
    assert (judge["name"], judge["model"], judge["prompt"]) == ("strict", "rule-strict", prompt_version())
    assert sum(day["pairs"] for day in judge["answered"]) == source.pairs
    for place in source.result("step", "places"):
        assert 1 <= place["place"] <= place["of"] <= 6
    # Another folder is made of the journal alone.
    again, _ = perform(JUDGE, step(source, judges, out=source.folder / "again"))
    assert source.content("again")[:2] == source.content("step")[:2]
    assert again["counts"]["details"]["words"]["known"] == source.pairs
    assert perform(JUDGE, settings)[1]
    assert server.made == made


def test_a_larger_pool_pays_only_for_the_new_pairs(make_source, make_server, endpoint, judges_of):
    source, server = make_source(2, 20), endpoint()
    judges = judges_of(make_server(server))
    pools = source.rows("pools")
    source.write("pools", [{**row, "corpus-ids": row["corpus-ids"][:9]} for row in pools])
    source.judged(judges, "small", journal="j")
    source.write("pools", pools)
    report = source.judged(judges, "large", journal="j")
    assert report["judges"][0]["known"] == 18
    assert report["judges"][0]["bought"] == 6
    assert set(server.sold.values()) == {1}
    assert sum(server.sold.values()) == 40


def test_equal_texts_are_judged_once(make_source, make_server, endpoint, judges_of):
    source, server = make_source(2, 6), endpoint()
    queries, documents = source.rows("queries"), source.rows("documents")
    queries[1]["text"] = queries[0]["text"]
    documents[1] = {**documents[0], "_id": documents[1]["_id"]}
    source.write("queries", queries)
    source.write("documents", documents)
    source.judged(judges_of(make_server(server)))
    assert sum(server.sold.values()) == 5
    assert len(source.result()) == 12


def test_prompts_are_cut_by_number_and_length(make_source, make_server, endpoint, judges_of):
    source, server = make_source(1, 10), endpoint()
    documents = source.rows("documents")
    documents[0]["text"] = "长" * 3000
    source.write("documents", documents)
    source.judged(judges_of(make_server(server), passages=5, prompt_tokens=2500))
    shown = [rule_judges.read_prompt(body["messages"]).passages for body in server.bodies]
    assert sum(len(passages) <= 7 for passages in shown) == len(shown)
    assert any(sum(map(len, passages.values())) > 3000 and len(passages) == 1 for passages in shown)


def test_the_order_of_passages_differs_between_judges(make_source, make_server, endpoint, judges_of):
    source, server = make_source(1, 8), endpoint()
    url = make_server(server)
    judges = [{"name": name, "model": "rule-words", "base_url": url, "variant": name} for name in "ab"]
    source.judged(Judges(judges=judges, check_positives=False))
    first, second = (
        list(rule_judges.read_prompt(b["messages"]).passages.values()) for b in server.bodies[:2]
    )
    assert first != second


@pytest.mark.parametrize("status", [400, 403])
def test_a_content_filter_refuses_a_passage_and_not_the_judge(
    make_source, make_server, endpoint, judges_of, status
):
    """The filter names no code; its message is kept beside the pair."""
    source, server = make_source(2, 8), endpoint()
    documents = source.rows("documents")
    documents[3]["text"] += "敏感词"
    source.write("documents", documents)

    def filtered(call):
        if "敏感词" in call.body["messages"][-1]["content"]:
            message = "Output data may contain inappropriate content."
            return rule_judges.Answer(status, {"error": {"message": message}})
        return None

    server.instead.append(filtered)
    report = source.judged(judges_of(make_server(server), max_failed=0.0))
    assert report["complete"]
    assert report["judges"][0]["failed"] == {"filtered": 2}
    failed = source.result(name="failed")
    assert {row["corpus-id"] for row in failed} == {"d003"}
    assert all("inappropriate content" in row["message"] for row in failed)
    assert len(source.result()) == 14


def test_a_judge_that_fails_on_many_pairs_stops_the_step(
    make_source, make_server, endpoint, judges_of, monkeypatch
):
    source = make_source(1, 12)
    server = endpoint(rate=1.0, line=(), answers=("missing",))
    report = source.judged(judges_of(make_server(server), max_failed=0.01))
    assert not report["complete"]
    assert "max_failed" in report["judges"][0]["stopped"]
    assert not (source.folder / "out" / "judgements.jsonl").exists()
    server = endpoint(rate=1.0, line=(), answers=("invalid",))
    monkeypatch.setattr(sys.modules["medteb_mteb.curation.llm.generate"], "MAX_UNUSABLE", 3)
    report = source.judged(judges_of(make_server(server), concurrency=1), journal="other")
    assert "no use" in report["judges"][0]["stopped"]
    assert server.made == 3


class Grader:
    """A cross-encoder that grades by the length of a text."""

    def __init__(self, folder, batch_size=32):
        self.thresholds = type("Thresholds", (), {"labels": (0, 4)})

    def identity(self):
        return {"digest": "1"}

    def label(self, pairs):
        return [len(text) % 5 for _, text in pairs]


def test_a_cross_encoder_is_a_judge_beside_llms(make_source, make_server, endpoint, monkeypatch):
    monkeypatch.setattr("mar_st.graded.grader.Grader", Grader)
    source, server = make_source(2, 6), endpoint()
    url = make_server(server)
    judges = Judges(
        judges=[
            {"name": "learned", "cross_encoder": "folder"},
            {"name": "words", "model": "rule-words", "base_url": url},
        ],
        check_positives=False,
    )
    assert isinstance(judges.judges[0], LearnedJudge)
    report = source.judged(judges)
    assert report["complete"]
    texts = {d["_id"]: f"{d['title']}\n{d['text']}" for d in source.rows("documents")}
    for row in source.result():
        if row["judge"] == "learned":
            assert row["grade"] == "DCBAS"[len(texts[row["corpus-id"]]) % 5]
    assert {row["judge"] for row in source.result(name="places")} == {"words"}
    monkeypatch.setattr(Grader, "label", None)  # all grades are in the journal
    assert source.judged(judges, "again", journal="out")["judges"][0]["known"] == 12


def test_another_cross_encoder_in_the_same_folder_makes_another_step(tmp_path, make_source):
    folder = tmp_path / "grader"
    folder.mkdir()
    marks = set()
    for weights in (b"1", b"2"):
        (folder / "model.safetensors").write_bytes(weights)
        judges = Judges(judges=[{"name": "learned", "cross_encoder": str(folder)}])
        marks.add(fingerprint(JUDGE, step(make_source(), judges)))
    assert len(marks) == 2


@pytest.mark.parametrize(
    ("judges", "words"),
    [
        ([], "judges"),
        ([{"name": "a"}], "model"),
        ([{"name": "a", "model": "m", "base_url": "ftp://x"}], "address"),
        ([{"name": "a", "model": "m", "base_url": "https://user:secret@x/v1"}], "api_key_env"),
        ([{"name": "a", "model": "m", "base_url": "http://x", "passage": 3}], "passage"),
        ([{"name": "a", "model": "m", "base_url": "http://x", "extra": {"model": "b"}}], "model"),
        ([{"name": "a", "model": "m", "base_url": "http://x", "budget": 1}], "price"),
        ([{"name": n, "model": "m", "base_url": "http://x"} for n in "ab"], "variant"),
        ([{"name": "a", "model": m, "base_url": "http://x"} for m in "mn"], "name"),
    ],
)
def test_judges_that_cannot_be_used_are_refused(judges, words):
    with pytest.raises(MarError, match=words) as refused:
        validated(Judges, {"judges": judges}, "judges.yaml")
    assert "judges.yaml" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_missing_key_is_reported_before_anything_is_sent(make_source, judges_of, monkeypatch):
    monkeypatch.delenv("KEY_OF_TEST", raising=False)
    source = make_source(1, 2)
    with pytest.raises(MarError, match="KEY_OF_TEST"):
        perform(JUDGE, step(source, judges_of("https://example.org/v1", api_key_env="KEY_OF_TEST")))
    with pytest.raises(MarError, match="api_key_env"):
        perform(JUDGE, step(source, judges_of("https://example.org/v1")))
    monkeypatch.setenv("KEY_OF_TEST", "with blanks")
    with pytest.raises(MarError, match="KEY_OF_TEST"):
        perform(JUDGE, step(source, judges_of("https://example.org/v1", api_key_env="KEY_OF_TEST")))


def test_pools_are_those_of_mteb(tmp_path):
    rows = [{"query-id": 1, "corpus-ids": ["a", 2, "a"], "ranks": {}}, {"query-id": "q", "corpus-ids": []}]
    file = tmp_path / "top_ranked.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_pools(tmp_path) == read_pools(file) == {"1": ("a", "2"), "q": ()}
    with pytest.raises(MarError, match="'2'"):
        read_pools(file, documents={"a"})
    with pytest.raises(MarError, match="query"):
        read_pools(file, queries={"q"})
    file.write_text('{"query": 1}\n')
    with pytest.raises(MarError, match="query-id"):
        read_pools(file)


def test_the_command_reads_the_judges_of_a_file(make_source, make_server, endpoint, medteb):
    source, server = make_source(1, 4), endpoint()
    file = source.folder / "judges.yaml"
    entry = {"name": "words", "model": "rule-words", "base_url": make_server(server)}
    file.write_text(yaml.safe_dump({"judges": [entry]}), encoding="utf-8")
    paths = [str(source.path(name)) for name in ("queries", "documents", "pools")]
    out = [str(source.folder / "out"), "--judges", str(file)]
    code, _, error = medteb("judge", *paths, *out)
    assert code != 0
    assert "anonym" in error
    assert server.arrived == 0
    code, printed, error = medteb("judge", *paths, *out, "--already-anonymous", "--json")
    assert (code, error) == (0, "")
    assert json.loads(printed)["rows"] == 4
    assert (source.folder / "answers.sqlite").is_file()
