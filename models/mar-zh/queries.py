"""Write the texts that query encoders are aligned on: texts of every length and form, most of them long.

usage: queries.py data/pairs.jsonl data/texts.jsonl FIRST MORE

FIRST holds 28,000 texts of up to 150 characters, MORE 16,000 others of up to 220. 22 % of these are changed
by `benchmarks/noise.py`. Needs opencc and pypinyin.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from noise import changes

#: Numbers of texts.
FIRST, MORE = 28_000, 16_000
#: Characters of a short text, and of a long one in either file.
SHORT, LONG, LONGER = range(8, 45), range(45, 151), range(45, 221)
#: Share of the other texts that are changed, by the name of the change.
CHANGED = {"traditional": 0.12, "typos": 0.05, "characters dropped": 0.05, "clean": 0.78}


def main(pairs: str, texts: str, first: str, more: str) -> None:
    """Write distinct texts, in an order drawn with a fixed seed."""
    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    given = [json.loads(line)["text"] for line in Path(texts).read_text(encoding="utf-8").splitlines()]
    questions, answers = (sorted({row[name] for row in rows}) for name in ("query", "positive"))
    whole = list(dict.fromkeys([*questions, *answers, *given]))
    draw = random.Random(42)
    written = first_texts(questions, whole, draw)[:FIRST]
    write(first, written)
    others = more_texts(questions, whole, draw)
    change = changes(whole)
    names = draw.choices(list(CHANGED), list(CHANGED.values()), k=len(others))
    changed = [change[name](text) for name, text in zip(names, others, strict=True)]
    known = set(written)
    write(more, [text for text in dict.fromkeys(changed) if text not in known][:MORE])


def first_texts(questions: list[str], whole: list[str], draw: random.Random) -> list[str]:
    """Return texts, half of them short (terms, questions, sentences), half of 45 to 150 characters."""
    half = 20_000
    terms = drawn([text for text in whole if len(text) < SHORT.start], half // 5, draw)
    short = drawn([text for text in questions if len(text) in SHORT], half // 2, draw)
    short += drawn(sentences_of(whole), half - len(short) - len(terms), draw)
    long = drawn([text for text in questions if len(text) in LONG], half // 3, draw)
    long += drawn(titled(questions, LONG, draw), half // 4, draw)
    long += drawn(runs(whole, 2 * half, LONG, draw), half - len(long), draw)
    return shuffled([*terms, *short, *long], draw)


def more_texts(questions: list[str], whole: list[str], draw: random.Random) -> list[str]:
    """Return texts of all kinds, more than enough; runs of clauses are the most."""
    shares = {
        "terms": (0.08, [text for text in whole if len(text) < SHORT.start]),
        "short questions": (0.1, [text for text in questions if len(text) in SHORT]),
        "sentences": (0.17, sentences_of(whole)),
        "whole texts": (0.27, [text for text in whole if len(text) in LONGER]),
        "titled": (0.08, titled(questions, LONGER, draw)),
        "joined": (0.1, joined(questions, MORE // 5, draw)),
    }
    texts = [text for share, given in shares.values() for text in drawn(given, int(share * MORE), draw)]
    rest = int(1.3 * MORE) - len(texts)  # some will be equal to others
    texts += drawn(runs(whole, 4 * rest, LONGER, draw), rest, draw)
    return shuffled(texts, draw)


def drawn(texts: list[str], number: int, draw: random.Random) -> list[str]:
    """Return up to `number` distinct texts."""
    distinct = sorted(set(texts))
    return draw.sample(distinct, min(number, len(distinct)))


def shuffled(texts: list[str], draw: random.Random) -> list[str]:
    """Return distinct texts in another order."""
    kept = list(dict.fromkeys(texts))
    draw.shuffle(kept)
    return kept


def sentences_of(texts: list[str]) -> list[str]:
    """Return the short sentences of texts."""
    return [part for text in texts for part in re.split(r"[。！？；\n]", text) if len(part) in SHORT]


def clauses_of(text: str) -> list[str]:
    """Return the clauses of a text, each with the marks that end it."""
    return re.findall(r"[^，,。！？；：\n]+[，,。！？；：\n]*", text)


def titled(questions: list[str], lengths: range, draw: random.Random) -> list[str]:
    """Return questions with one of their clauses in front, as a title."""
    made = []
    for question in questions:
        clauses = [clause.strip("，,。；：\n ") for clause in clauses_of(question)]
        titles = [clause for clause in clauses if len(clause) > 5]
        if len(clauses) > 1 and titles:
            made.append(f"{draw.choice(titles)} {question}")
    return [text for text in made if len(text) in lengths]


def joined(questions: list[str], number: int, draw: random.Random) -> list[str]:
    """Return texts of two or three questions."""
    made = ["".join(draw.sample(questions, draw.choice((2, 3)))) for _ in range(number)]
    return [text for text in made if len(text) in LONGER]


def runs(texts: list[str], number: int, lengths: range, draw: random.Random) -> list[str]:
    """Return `number` runs of clauses; a text is drawn by its clauses, the length of a run from `lengths`."""
    divided = [clauses for text in texts if len(clauses := clauses_of(text)) > 2]
    made = []
    for clauses in draw.choices(divided, [len(clauses) for clauses in divided], k=number):
        wanted, first, run = draw.choice(lengths), draw.randrange(len(clauses)), ""
        for clause in clauses[first:]:
            if len(run) + len(clause) > wanted:
                break
            run += clause
        if len(run) in lengths:
            made.append(run.strip("，,；：\n "))
    return made


def write(path: str, texts: list[str]) -> None:
    """Write rows of texts."""
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    Path(path).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
