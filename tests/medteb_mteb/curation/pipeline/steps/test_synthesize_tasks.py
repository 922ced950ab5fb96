"""The step `synthesize-tasks`: tasks of its own or of a file, and examples of them."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.synthetic import TaskSettings

TASKS = {"step": "synthesize-tasks", "name": "tasks", "tasks": 2, "pairs_per_task": 2}
OWN = ["给定一种症状，检索相关的科普文章。", "给定一种药物的名称，检索药品说明书中的一段。"]


@pytest.fixture
def own(tmp_path):
    """The file of two tasks; one is there twice."""
    (tmp_path / "own.txt").write_text("\n".join([*OWN, OWN[0], ""]), encoding="utf-8")
    return {**TASKS, "tasks_from": "own.txt"}


def test_every_option_reaches_the_settings(parsed):
    options = {"language": "en", "tasks": 7, "pairs_per_task": 3, "seed": 5}
    settings = asdict(parsed(**{**TASKS, **options, "origin": "clinic"}).settings())
    assert settings == {**options, "source": "clinic", "tasks_from": None}
    assert parsed(step="synthesize-tasks").settings() == TaskSettings()


def test_the_prompts_are_those_of_the_language(parsed):
    zh, en = (parsed(**TASKS, language=language).prompts().split() for language in ("zh", "en"))
    assert len(zh) == len(en) == len({*zh, *en}) / 2 == 2


def test_examples_are_those_of_the_tasks_of_a_file(made, own, rows_of, server, llm):
    result, folder = made({**own, "origin": "clinic"}, url=server, llm=llm("questions", server))
    rows = rows_of(folder / "triples.jsonl")
    assert {row["instruction"] for row in rows} <= set(OWN)
    assert {row["source"] for row in rows} == {"clinic"}
    assert len(rows) == result["kept"] > 0
    assert (result["tasks"], result["examples"], result["bought"]) == (2, 4, 4)
    assert result["dropped"]["repeated"] == 1


def test_queries_of_a_test_are_dropped(made, own, rows_of, save, server, llm):
    settings = {"url": server, "llm": llm("questions", server)}
    _, folder = made(own, **settings)
    queries = [row["query"] for row in rows_of(folder / "triples.jsonl")]
    save("held-out.jsonl", [{"_id": "t1", "text": queries[0]}])
    result, folder = made(
        {**own, "name": "away", "against": ["held-out.jsonl"], "threshold": 1.0}, **settings
    )
    assert (result["kept"], result["bought"]) == (len(queries) - queries.count(queries[0]), 0)
    assert result["dropped"]["test-query"] == queries.count(queries[0])


def test_a_forecast_is_exact_for_the_tasks_of_a_file_and_an_estimate_before_a_brainstorm(planned, own, llm):
    (of_file,), (own_tasks,) = (planned(step, llm=llm("questions")).charges for step in (own, TASKS))
    assert (of_file.requests, of_file.exact) == (4, True)
    assert not own_tasks.exact
    assert own_tasks.requests > 4  # the brainstorm, too


def test_a_forecast_is_exact_once_the_tasks_are_there(planned, save, llm):
    save("build/tasks/tasks.jsonl", [{"task": task} for task in (*OWN, "给定一份化验报告，检索医生的回答。")])
    plan = planned({**TASKS, "pairs_per_task": 5}, llm=llm("questions"))
    assert plan.charges[0].exact
    assert plan.charges[0].requests >= 15
    assert plan.writes.items == 10


def test_a_missing_file_of_tasks_is_named(planned, llm):
    with pytest.raises(BuildError, match=r"Step 'tasks', tasks_from: there is no step 'gone\.txt'"):
        planned({**TASKS, "tasks_from": "gone.txt"}, llm=llm("questions"))
