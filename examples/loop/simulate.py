"""Make months of a data folder, to try the loop without waiting.

    python simulate.py DATA --months 3

The queries of a folder with queries.jsonl, corpus.jsonl and qrels/test.tsv are dealt to months at random, and
so are the documents; one that answers a query is there when the query comes. The dates are made up.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

FIRST_YEAR, FIRST_MONTH = 2026, 10
DAYS = 28
#: Share of the documents that are there from the first month on.
KNOWN = 0.7


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def month_name(number: int) -> str:
    """Return the name of a month, counted from 0."""
    year, month = divmod(FIRST_MONTH - 1 + number, 12)
    return f"{FIRST_YEAR + year}-{month + 1:02d}"


def answers(path: Path) -> dict[str, list[str]]:
    """Return the documents that answer each query, from a file of qrels (query, document, score)."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if float(score) > 0:
            found.setdefault(query, []).append(document)
    return found


def simulate(
    data: Path, out: Path, *, months: int, queries: int, documents: int, seed: int
) -> dict[str, tuple[int, int]]:
    """Write the months, and return the number of queries and documents of each.

    Args:
        data: Folder with queries.jsonl, corpus.jsonl, qrels/test.tsv.
        out: Folder to write `MONTH/queries.jsonl` and `MONTH/documents.jsonl` to.
        months: Number of months.
        queries: Maximum number of queries per month.
        documents: Maximum number of documents, but for those that answer a query.
        seed: Seed of all random choices.
    """
    rng = random.Random(seed)
    logged, corpus = rows_of(data / "queries.jsonl"), rows_of(data / "corpus.jsonl")
    rng.shuffle(logged)
    rng.shuffle(corpus)
    size = min(queries, len(logged) // months)
    asked = [logged[number * size : (number + 1) * size] for number in range(months)]
    due = {row["_id"]: 0 if rng.random() < KNOWN else rng.randrange(months) for row in corpus[:documents]}
    relevant = answers(data / "qrels" / "test.tsv")
    for number, rows in enumerate(asked):
        for document in (one for row in rows for one in relevant.get(row["_id"], ())):
            due[document] = min(due.get(document, number), number)
    written = {}
    for number in range(months):
        name = month_name(number)
        new = [row for row in corpus if due.get(row["_id"]) == number]
        for kind, rows in (("queries", asked[number]), ("documents", new)):
            path = out / name / f"{kind}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            dated = [{**row, "date": f"{name}-{rng.randint(1, DAYS):02d}"} for row in rows]
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in dated]
            path.write_text("".join(lines), encoding="utf-8")
        written[name] = len(asked[number]), len(new)
    return written


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, and write the months."""
    parser = argparse.ArgumentParser(description="Make months of a data folder. The dates are made up.")
    parser.add_argument("data", type=Path, help="folder with queries.jsonl, corpus.jsonl and qrels/test.tsv")
    parser.add_argument("--out", type=Path, default=Path("new"), help="folder to write the months to")
    parser.add_argument("--months", type=int, default=3, help="number of months")
    parser.add_argument("--queries", type=int, default=1000, help="maximum number of queries per month")
    parser.add_argument("--documents", type=int, default=100_000, help="maximum number of documents")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices")
    options = parser.parse_args(arguments)
    given = vars(options)
    for name, (queries, documents) in simulate(given.pop("data"), given.pop("out"), **given).items():
        print(f"{name}: {queries} queries, {documents} documents")
    print("The dates are made up.")


if __name__ == "__main__":
    main()
