"""Write the texts that query encoders are aligned on: texts of every length and form.

usage: queries.py data/pairs.jsonl data/texts.jsonl OUT

A fifth of the 48,000 texts are changed by `benchmarks/noise.py`. Needs opencc and pypinyin.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from noise import changes

NUMBER = 48_000
#: Characters of a short text, and of a long one.
SHORT, LONG = range(8, 45), range(45, 221)
#: Share of the texts that are changed, by the name of the change.
CHANGED = {"traditional": 0.12, "typos": 0.05, "characters dropped": 0.05, "clean": 0.78}


def main(pairs: str, texts: str, out: str) -> None:
    """Write distinct texts, in an order drawn with a fixed seed."""
    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    given = [json.loads(line)["text"] for line in Path(texts).read_text(encoding="utf-8").splitlines()]
    questions, answers = (sorted({row[name] for row in rows}) for name in ("query", "positive"))
    whole = list(dict.fromkeys([*questions, *answers, *given]))
    draw = random.Random(42)
    drawn = texts_of_all_kinds(questions, whole, draw)
    change = changes(whole)
    names = draw.choices(list(CHANGED), list(CHANGED.values()), k=len(drawn))
    changed = dict.fromkeys(change[name](text) for name, text in zip(names, drawn, strict=True))
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in changed]
    Path(out).write_text("".join(lines[:NUMBER]), encoding="utf-8")


def texts_of_all_kinds(questions: list[str], whole: list[str], draw: random.Random) -> list[str]:
    """Return distinct texts in a random order, more than enough; runs of clauses are the most."""
    kinds = {
        "terms": (0.07, [text for text in whole if len(text) < SHORT.start]),
        "short questions": (0.1, [text for text in questions if len(text) in SHORT]),
        "sentences": (0.15, sentences_of(whole)),
        "long texts": (0.18, [text for text in whole if len(text) in LONG]),
        "titled": (0.06, titled(questions, draw)),
        "joined": (0.05, joined(questions, NUMBER // 10, draw)),
    }
    texts = []
    for share, given in kinds.values():
        distinct = sorted(set(given))
        texts += draw.sample(distinct, min(int(share * NUMBER), len(distinct)))
    texts += runs(whole, int(1.3 * NUMBER) - len(texts), draw)  # some will be equal to others
    kept = list(dict.fromkeys(texts))
    draw.shuffle(kept)
    return kept


def sentences_of(texts: list[str]) -> list[str]:
    """Return the short sentences of texts."""
    return [part for text in texts for part in re.split(r"[。！？；\n]", text) if len(part) in SHORT]


def clauses_of(text: str) -> list[str]:
    """Return the clauses of a text, each with the marks that end it."""
    return re.findall(r"[^，,。！？；：\n]+[，,。！？；：\n]*", text)


def titled(questions: list[str], draw: random.Random) -> list[str]:
    """Return questions with one of their clauses in front, as a title."""
    made = []
    for question in questions:
        clauses = [clause.strip("，,。；：\n ") for clause in clauses_of(question)]
        titles = [clause for clause in clauses if len(clause) > 5]
        if len(clauses) > 1 and titles:
            made.append(f"{draw.choice(titles)} {question}")
    return [text for text in made if len(text) in LONG]


def joined(questions: list[str], number: int, draw: random.Random) -> list[str]:
    """Return texts of two or three questions."""
    made = ["".join(draw.sample(questions, draw.choice((2, 3)))) for _ in range(number)]
    return [text for text in made if len(text) in LONG]


def runs(texts: list[str], number: int, draw: random.Random) -> list[str]:
    """Return about `number` runs of clauses; a text is drawn by its clauses, the length of a run evenly."""
    divided = [clauses for text in texts if len(clauses := clauses_of(text)) > 2]
    made = []
    for clauses in draw.choices(divided, [len(clauses) for clauses in divided], k=2 * number):
        wanted, first, run = draw.choice(range(SHORT.start, LONG.stop)), draw.randrange(len(clauses)), ""
        for clause in clauses[first:]:
            if len(run) + len(clause) > wanted:
                break
            run += clause
        if len(run) >= SHORT.start:
            made.append(run.strip("，,；：\n "))
    return made[:number]


if __name__ == "__main__":
    main(*sys.argv[1:])
