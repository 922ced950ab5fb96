from __future__ import annotations

import json
import re

import pytest
import yaml

from mar_st.data import read_source
from mar_st.recipes.schema import Data
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm import load_llm
from medteb_mteb.curation.synthetic import TaskSettings, estimate_tasks, synthesize_tasks
from medteb_mteb.curation.synthetic.grid import GRID, length_of

QUERIES = [
    "一种症状",
    "一种药物",
    "一份化验单",
    "一段病情",
    "一条传言",
    "一个术语",
    "家属提问",
    "手术名称",
    "基因符号",
    "器械型号",
]
DOCUMENTS = [
    "科普文章", "指南段落", "医生答复", "说明书", "论文摘要", "病历记录", "用药教育", "护理常规",
    "报销政策", "试题解析",
]  # fmt: skip
TASKS = [f"给定{query}，检索与之对应的{document}。" for query in QUERIES for document in DOCUMENTS]


class Writer:
    """Gives its tasks in the order of the calls, and examples of the length that is asked for."""

    def __init__(self, tasks=TASKS) -> None:
        self.tasks, self.given = list(tasks), 0
        self.prompts: list[str] = []

    def __call__(self, messages) -> str:
        text = messages[-1]["content"]
        self.prompts.append(text)
        if '"user_query"' not in text:
            given, self.tasks = self.tasks[:20], self.tasks[20:]
            return json.dumps({"tasks": given}, ensure_ascii=False)
        return json.dumps(self.example(text), ensure_ascii=False)

    def example(self, text: str) -> dict[str, str]:
        self.given += 1
        digits = "".join("零一二三四五六七八九"[int(digit)] for digit in f"{self.given:03}")
        query = {
            "少于": f"病{digits}",
            "8到": f"{digits}{digits[::-1]}病怎么治",
            "至少": f"第{digits}种病" * 4,
        }
        length = re.search(r"长度：(少于|8到|至少)", text)[1]
        size = int(re.search(r"(\d+)个字左右", text)[1])
        return {
            "user_query": query[length],
            "positive_document": ("能够回答它的一段文字。" * 64)[:size],
            "hard_negative_document": ("看似相关实则不然的内容。" * 64)[:size],
        }


def synthesized(out, llm, **options):
    settings = {
        name: options.pop(name)
        for name in ("tasks", "pairs_per_task", "tasks_from", "language")
        if name in options
    }
    return synthesize_tasks(
        out,
        llm,
        TaskSettings(**{"tasks": 3, "pairs_per_task": 4, **settings}),
        show_progress=False,
        **options,
    )


def test_each_task_gets_its_triples_from_a_draw_of_its_own(endpoint, tmp_path, rows_of):
    writer = Writer()
    server, llm = endpoint(writer)
    report = synthesized(tmp_path / "out", llm, tasks=3, pairs_per_task=4)
    assert (report.complete, report.kept, report.bought) == (True, 12, 13)
    assert report.dropped == {"not-needed": 17}
    assert rows_of(tmp_path / "out" / "tasks.jsonl") == [{"task": task} for task in TASKS[:3]]
    rows = rows_of(report.rows)
    assert [row["instruction"] for row in rows] == [task for task in TASKS[:3] for _ in range(4)]
    assert {row["source"] for row in rows} == {"synthetic-tasks"}
    for row in rows:
        assert set(row["constraints"]) == set(GRID)
        assert len(row["positive"]) == length_of(row["constraints"]["num_words"], "zh").most
    # Every task has a draw of its own.
    cells = [[json.dumps(row["constraints"]) for row in rows if row["instruction"] == t] for t in TASKS[:3]]
    assert all(len(set(constraints)) == 4 for constraints in cells)
    assert cells[0] != cells[1]
    assert server.made == 13


def test_mar_train_reads_the_triples(endpoint, tmp_path, rows_of):
    _, llm = endpoint(Writer())
    report = synthesized(tmp_path / "out", llm)
    for path in (report.rows, tmp_path / "out"):  # the folder is a source, too
        triples = read_source(Data(name="tasks", path=str(path), prompt="", negatives=1), 42).triples
        assert [(t.query, t.positives, t.negatives) for t in triples] == [
            (row["query"], (row["positive"],), (row["negative"],)) for row in rows_of(report.rows)
        ]
        assert triples[0].instruction == f"<instruct>{TASKS[0]}\n<query>"
        assert triples[0].source == "synthetic-tasks"


def test_prompts_state_the_constraints(endpoint, tmp_path, rows_of):
    writer = Writer()
    _, llm = endpoint(writer, llm={"concurrency": 1})
    report = synthesized(tmp_path / "out", llm, tasks=1, pairs_per_task=1)
    (row,) = rows_of(report.rows)
    prompt = writer.prompts[-1]
    assert f"{length_of(row['constraints']['num_words'], 'zh').most}个字左右" in prompt
    assert re.search(rf"^<task-(\w{{12}})>\n{TASKS[0]}\n</task-\1>$", prompt, re.MULTILINE)
    assert {"高中": "high school", "大学": "college", "博士": "PhD"}[
        re.search(r"需要(..)程度", prompt)[1]
    ] == row["constraints"]["difficulty"]


def test_tasks_that_repeat_are_dropped_and_more_are_asked_for(endpoint, tmp_path, rows_of):
    """Twenty new ones, then eighteen old ones and two new, then a third round."""
    repeated = [*TASKS[:20], *[task.rstrip("。") for task in TASKS[:18]], *TASKS[20:60]]
    writer = Writer(repeated)
    server, llm = endpoint(writer)
    report = synthesized(tmp_path / "out", llm, tasks=25, pairs_per_task=1)
    assert [row["task"] for row in rows_of(tmp_path / "out" / "tasks.jsonl")] == TASKS[:25]
    assert report.dropped["near-duplicate"] == 18
    near = [row for row in rows_of(tmp_path / "out" / "dropped.jsonl") if row["reason"] == "near-duplicate"]
    assert near[0] == {"task": TASKS[0].rstrip("。"), "reason": "near-duplicate", "detail": TASKS[0]}
    assert (report.kept, server.made) == (25, 3 + 25)


def test_requests_end_if_an_llm_repeats_itself(endpoint, tmp_path):
    writer = Writer()
    server, llm = endpoint(
        lambda m: (
            json.dumps({"tasks": TASKS[:5]}, ensure_ascii=False)
            if '"user_query"' not in m[-1]["content"]
            else writer(m)
        )
    )
    report = synthesized(tmp_path / "out", llm, tasks=20, pairs_per_task=1)
    assert (report.complete, report.details["tasks"], server.made) == (True, 5, 5 + 5)
    assert "5 of 20 tasks after 5 calls" in report.notes[0]


def test_no_task_at_all_is_an_error(endpoint, tmp_path):
    _, llm = endpoint(lambda messages: '{"tasks": ["x", "Given a drug, retrieve it."]}')
    with pytest.raises(BuildError, match=r"no task that can be used \(10 language\)"):
        synthesized(tmp_path / "out", llm)
    _, llm = endpoint(lambda messages: "no")
    with pytest.raises(BuildError, match="no-json"):
        synthesized(tmp_path / "other", llm, journal=tmp_path / "other.sqlite")


def test_a_run_in_which_every_example_failed_is_an_error(endpoint, tmp_path):
    writer, refusals = Writer(), [True]

    def answer(messages) -> str:
        refused = refusals and '"user_query"' in messages[-1]["content"]
        return "no" if refused else writer(messages)

    server, llm = endpoint(answer, llm={"unreadable": None})
    every = r"no valid answer to any of 12 prompts \(no-json 12\), so nothing is written.*--retry-failed"
    with pytest.raises(BuildError, match=every):
        synthesized(tmp_path / "out", llm)
    requests = server.made
    with pytest.raises(BuildError, match=every):
        synthesized(tmp_path / "out", llm)
    assert server.made == requests
    assert not (tmp_path / "out/manifest.json").exists()
    refusals.clear()
    assert synthesized(tmp_path / "out", llm, retry_failed=True).kept == 12


def test_tasks_of_a_file_are_used_once_each_in_their_order(endpoint, tmp_path, rows_of):
    file = tmp_path / "tasks.txt"
    file.write_text("\n检索甲类文档的任务\n\n检索乙类文档的任务\n检索甲类文档的任务\n", encoding="utf-8")
    server, llm = endpoint(Writer())
    report = synthesized(tmp_path / "out", llm, tasks_from=file, pairs_per_task=2)
    assert [row["instruction"] for row in rows_of(report.rows)] == ["检索甲类文档的任务"] * 2 + [
        "检索乙类文档的任务"
    ] * 2
    assert (report.dropped, server.made) == ({"repeated": 1}, 4)
    file.write_text("另一个任务", encoding="utf-8")
    with pytest.raises(BuildError, match="other settings"):
        synthesized(tmp_path / "out", llm, tasks_from=file, pairs_per_task=2)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(BuildError, match="holds no task"):
        synthesized(tmp_path / "new", llm, tasks_from=file)
    with pytest.raises(BuildError, match="cannot be read"):
        synthesized(tmp_path / "new", llm, tasks_from=tmp_path / "none.txt")


def test_a_larger_run_requests_only_new_examples(endpoint, tmp_path, rows_of):
    server, llm = endpoint(Writer())
    few = synthesized(tmp_path / "few", llm, pairs_per_task=2)
    more = synthesized(tmp_path / "more", llm, pairs_per_task=5)
    assert (few.bought, more.known, more.bought) == (1 + 6, 1 + 6, 9)
    kept = [json.dumps(row) for row in rows_of(more.rows)]
    assert all(json.dumps(row) in kept for row in rows_of(few.rows))
    assert server.made == 16


@pytest.mark.thorough
def test_a_stopped_run_resumes_to_the_same_bytes(endpoint, tmp_path, content):
    class Still(Writer):
        """The same prompt gets the same answer, whenever it comes."""

        def example(self, text: str) -> dict[str, str]:
            self.given = hash(text) % 999
            return super().example(text)

        def __call__(self, messages) -> str:
            self.tasks = list(TASKS)
            return super().__call__(messages)

    _, calm = endpoint(Still())
    synthesized(tmp_path / "calm" / "out", calm)
    server, llm = endpoint(Still())
    for budget in (1200, 4000, 8000):
        poor = llm.model_copy(update={"concurrency": 2, "budget_tokens": budget})
        report = synthesized(tmp_path / "torn" / "out", poor)
        assert not report.complete
        assert not report.rows.exists()
    assert 1 < server.made < 13
    assert synthesized(tmp_path / "torn" / "out", llm).complete
    assert content(tmp_path / "torn" / "out") == content(tmp_path / "calm" / "out")
    assert server.made == 13


def test_rejected_examples_and_invalid_answers_are_counted(endpoint, tmp_path, rows_of):
    writer = Writer()
    broken = iter(
        [
            '{"user_query": "病", "positive_document": "文"}',
            '{"user_query": "病", "positive_document": "文", "hard_negative_document": " "}',
            '{"user_query": "病", "positive_document": "文", "hard_negative_document": 3}',
        ]
    )
    by_prompt: dict[str, str] = {}

    def answer(messages) -> str:
        text = messages[-1]["content"]
        if '"user_query"' not in text:
            return writer(messages)
        if text not in by_prompt:
            example = writer.example(text)
            example["positive_document"] = example["hard_negative_document"]
            by_prompt[text] = next(broken, json.dumps(example, ensure_ascii=False))
        return by_prompt[text]

    _, llm = endpoint(answer, llm={"concurrency": 1})
    report = synthesized(tmp_path / "out", llm, tasks=1, pairs_per_task=4)
    assert report.kept == 0
    assert report.failed == {"empty": 1, "missing-key": 1, "not-strings": 1}
    assert report.dropped["same-documents"] == 1
    failed = rows_of(tmp_path / "out" / "failed.jsonl")
    assert {row["task"] for row in failed} == {TASKS[0]}
    assert {row["reason"] for row in failed} == set(report.failed)


def test_english_examples_are_asked_for_by_english_prompts(endpoint, tmp_path, rows_of):
    prompts = []

    def answer(messages) -> str:
        text = messages[-1]["content"]
        prompts.append(text)
        if '"user_query"' not in text:
            return json.dumps({"tasks": ["Given a drug name, retrieve its label."]})
        size = int(re.search(r"about (?:50-)?(\d+) words each", text)[1])
        query = {"less": "gout drugs", "5-10": "which drug helps when gout comes", "at": "gout pain " * 6}
        return json.dumps(
            {
                "user_query": query[re.search(r"of (less|5-10|at) ?\w*", text)[1]],
                "positive_document": "relief " * size,
                "hard_negative_document": "history " * size,
            }
        )

    _, llm = endpoint(answer)
    report = synthesized(tmp_path / "out", llm, tasks=1, pairs_per_task=1, language="en")
    (row,) = rows_of(report.rows)
    assert row["instruction"] == "Given a drug name, retrieve its label."
    assert row["constraints"]["query_type"] in prompts[-1]
    assert f"{row['constraints']['difficulty']} level" in prompts[-1]


def test_the_command_estimates_and_then_writes_examples(endpoint, tmp_path, synthesize):
    server, llm = endpoint(Writer())
    file = tmp_path / "llm.yaml"
    settings = {**llm.model_dump(), "price_in": 1.0, "price_out": 2.0}
    file.write_text(yaml.safe_dump({"llm": settings}), encoding="utf-8")
    out = tmp_path / "out"
    options = [out, "--llm", file, "--tasks", 3, "--pairs-per-task", 2, "-q"]
    code, printed, _ = synthesize("tasks", *options, "--dry-run")
    assert (code, server.arrived, out.exists()) == (0, 0, False)
    assert printed.startswith("7 prompts, 0 in the journal, 0 failed before; 7 requests")
    code, printed, _ = synthesize("tasks", *options, "--json")
    report = json.loads(printed)
    assert (code, report["kept"], report["tasks"], report["bought"]) == (0, 6, 3, 7)
    # With its tasks known, a dry run knows the prompts.
    _, printed, _ = synthesize("tasks", *options, "--dry-run", "--json")
    assert json.loads(printed)["known"] == 7
    with pytest.raises(BuildError, match="zh or en"):
        synthesize("tasks", *options, "--language", "fr")


def test_an_estimate_is_near_what_it_takes(endpoint, tmp_path):
    _, llm = endpoint(Writer())
    before = estimate_tasks(tmp_path / "out", llm, TaskSettings(tasks=3, pairs_per_task=20))
    synthesized(tmp_path / "out", llm, pairs_per_task=20)
    after = estimate_tasks(
        tmp_path / "out", llm, TaskSettings(tasks=3, pairs_per_task=20), journal=tmp_path / "none.sqlite"
    )
    assert before.requests == after.requests == 61
    assert before.tokens_in == pytest.approx(after.tokens_in, rel=0.1)
    assert before.tokens_out == pytest.approx(after.tokens_out, rel=0.25)


def test_the_rule_based_model_answers_the_prompts(tmp_path, rows_of):
    import rule_judges

    with rule_judges.serving(rule_judges.Endpoint()) as url:
        file = tmp_path / "llm.yaml"
        entry = {"name": "rules", "model": "rule-questions", "base_url": url}
        file.write_text(yaml.safe_dump({"llm": entry}), encoding="utf-8")
        report = synthesized(tmp_path / "out", load_llm(file), tasks=4, pairs_per_task=5)
    assert report.complete
    assert not report.failed
    assert report.kept >= 10
    assert len({row["instruction"] for row in rows_of(report.rows)}) == 4
