"""`medteb synthesize`: estimates, refusals, and runs that stop."""

from __future__ import annotations

import json

import pytest

QUERIES = ("synthesize", "queries", "documents.jsonl", "out", "--llm", "llm.yaml", "-q")
TASKS = ("synthesize", "tasks", "out", "--llm", "llm.yaml", "-q")


def prompts(medteb, *args):
    code, out, err = medteb(*args, "--dry-run", "--json")
    assert (code, err) == (0, "")
    return json.loads(out)["prompts"]


def test_a_dry_run_counts_the_documents_that_are_long_enough(medteb, pooled, llm, write):
    llm()
    write(pooled / "documents.jsonl", [{"_id": f"d{n}", "text": "脉" * n} for n in (10, 20, 30, 40)])
    before = sorted(pooled.iterdir())
    assert prompts(medteb, *QUERIES) == 3
    assert prompts(medteb, *QUERIES, "--shortest", "35") == 1
    assert prompts(medteb, *QUERIES, "--sample", "2") == 2
    assert medteb(*QUERIES, "--dry-run")[1].endswith("; nothing was sent\n")
    assert sorted(pooled.iterdir()) == before


def test_a_dry_run_of_tasks_counts_those_of_a_file(medteb, work, llm):
    llm()
    (work / "tasks.txt").write_text("找出药品说明书\n找出饮食建议\n", encoding="utf-8")
    two = prompts(medteb, *TASKS, "--tasks-from", "tasks.txt", "--pairs-per-task", "3")
    assert two == 2 * 3
    assert prompts(medteb, *TASKS, "--tasks", "2", "--pairs-per-task", "3") > two  # the brainstorm costs, too


@pytest.mark.parametrize("args", [(*QUERIES, "--already-anonymous", "--shortest", "1"), TASKS])
def test_a_run_that_stops_says_how_to_resume(medteb, pooled, llm, args):
    llm(budget_tokens=1)
    code, out, err = medteb(*args)
    assert code == 1
    assert out.startswith("0 rows: not complete\n")
    note, stopped = err.splitlines()
    assert note.startswith("note: no --against EDITION was given")
    assert stopped == "medteb: stopped: 0 of its 1 tokens are spent. Run the same command again to resume."
    report = json.loads(medteb(*args, "--json")[1])
    assert (report["complete"], report["bought"], report["kept"]) == (False, 0, 0)


@pytest.mark.parametrize("args", [QUERIES, TASKS], ids=["queries", "tasks"])
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--language", "fr"), "Texts are written in zh or en; got the language 'fr'"),
        (("--against", "gone", "--shortest", "1"), "gone"),
        (("--repair",), "There is no journal at "),
        (("--llm", "gone.yaml"), "gone.yaml cannot be read"),
    ],
)
def test_unusable_settings_are_refused(medteb, pooled, llm, args, more, message):
    llm()
    more = [part for part in more if args == QUERIES or part not in ("--shortest", "1")]
    code, out, err = medteb(*args, *more)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert not (pooled / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--shortest", "1"), "6 of 6 documents have not been anonymised"),
        (("--form", "poem=1"), "poem"),
        (("--form", "case=0"), "No form of a query has a weight above 0"),
        (("--per-document", "21"), "'--per-document'"),
        (("--column", "text"), "--column takes FIELD=COLUMN"),
    ],
)
def test_unusable_settings_of_queries_are_refused(medteb, pooled, llm, more, message):
    llm()
    code, out, err = medteb(*QUERIES, *more)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert not (pooled / "out").exists()
