"""Write the texts that query encoders are aligned on: texts of every length, half of them long.

usage: queries.py data/pairs.jsonl data/texts.jsonl queries.jsonl NUMBER

Short texts have 2 to 44 characters: questions, sentences and terms. Long ones have 45 to 150: questions, runs
of clauses cut out of any text, and questions with one of their clauses in front, as a title.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

#: Characters of a short and of a long text.
SHORT, LONG = range(8, 45), range(45, 151)
#: Share of terms among the short texts.
TERMS = 0.2


def main(pairs: str, texts: str, out: str, number: str) -> None:
    """Write distinct texts, in an order drawn with a fixed seed."""
    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    given = [json.loads(line)["text"] for line in Path(texts).read_text(encoding="utf-8").splitlines()]
    draw = random.Random(42)
    questions, answers = (sorted({row[name] for row in rows}) for name in ("query", "positive"))
    whole = list(dict.fromkeys([*questions, *answers, *given]))
    half = int(number) // 2
    terms = drawn([text for text in whole if len(text) < SHORT.start], int(TERMS * half), draw)
    sentences = [part for text in whole for part in re.split(r"[。！？；\n]", text)]
    asked = [text for text in questions if len(text) in SHORT]
    short = drawn(asked, half // 2, draw)
    short += drawn([text for text in sentences if len(text) in SHORT], half - len(short) - len(terms), draw)
    long = drawn([text for text in questions if len(text) in LONG], half // 3, draw)
    long += drawn(titled(questions, draw), half // 4, draw)
    long += drawn(runs(whole, 2 * half, draw), half - len(long), draw)
    kept = list(dict.fromkeys([*terms, *short, *long]))
    draw.shuffle(kept)
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in kept)
    Path(out).write_text("".join(lines), encoding="utf-8")


def drawn(texts: list[str], number: int, draw: random.Random) -> list[str]:
    """Return up to `number` distinct texts."""
    distinct = sorted(set(texts))
    return draw.sample(distinct, min(number, len(distinct)))


def clauses_of(text: str) -> list[str]:
    """Return the clauses of a text, each with the marks that end it."""
    return re.findall(r"[^，,。！？；：\n]+[，,。！？；：\n]*", text)


def titled(questions: list[str], draw: random.Random) -> list[str]:
    """Return questions with one of their clauses in front."""
    made = []
    for question in questions:
        clauses = [clause.strip("，,。；：\n ") for clause in clauses_of(question)]
        titles = [clause for clause in clauses if len(clause) > 5]
        if len(clauses) > 1 and titles:
            made.append(f"{draw.choice(titles)} {question}")
    return [text for text in made if len(text) in LONG]


def runs(texts: list[str], number: int, draw: random.Random) -> list[str]:
    """Return `number` runs of clauses; a text is drawn by its clauses, the length of a run from `LONG`."""
    divided = [clauses for text in texts if len(clauses := clauses_of(text)) > 2]
    made = []
    for clauses in draw.choices(divided, [len(clauses) for clauses in divided], k=number):
        wanted, first, run = draw.choice(LONG), draw.randrange(len(clauses)), ""
        for clause in clauses[first:]:
            if len(run) + len(clause) > wanted:
                break
            run += clause
        if len(run) in LONG:
            made.append(run.strip("，,；：\n "))
    return made


if __name__ == "__main__":
    main(*sys.argv[1:])
