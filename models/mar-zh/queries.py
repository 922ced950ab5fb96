"""Write the texts that query encoders are aligned on: questions, turns, sentences, and crops of all of them.

usage: queries.py data/pairs.jsonl data/texts.jsonl queries.jsonl
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

#: Characters of a text that may stand for a query.
MAX_QUERY_CHARS, MIN_QUERY_CHARS = 100, 8
#: Terms at most: names of diseases, drugs and symptoms, a third of the given texts.
MAX_TERMS = 8_000
#: Crops: runs of consecutive clauses of one text.
N_CROPS = 70_000


def main(pairs: str, texts: str, out: str) -> None:
    """Write distinct texts, in an order drawn with a fixed seed."""
    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    given = [json.loads(line)["text"] for line in Path(texts).read_text(encoding="utf-8").splitlines()]
    draw = random.Random(42)
    questions, answers = (sorted({row[name] for row in rows}) for name in ("query", "positive"))
    whole = list(dict.fromkeys([*questions, *answers, *given]))
    terms = [text for text in whole if len(text) < MIN_QUERY_CHARS]
    sentences = [part for text in whole for part in re.split(r"[。！？；\n]", text)]
    kept = [
        *questions,
        *(text for text in [*given, *sentences] if MIN_QUERY_CHARS <= len(text) <= MAX_QUERY_CHARS),
        *draw.sample(terms, min(MAX_TERMS, len(terms))),
    ]
    kept = list(dict.fromkeys(kept))
    kept += crops(whole, N_CROPS, draw, known=set(kept))
    draw.shuffle(kept)
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in kept)
    Path(out).write_text("".join(lines), encoding="utf-8")


def crops(texts: list[str], number: int, draw: random.Random, known: set[str]) -> list[str]:
    """Return up to `number` distinct runs of clauses that are not `known`; a text is drawn by its clauses."""
    divided = [re.findall(r"[^，,。！？；：\n]+[，,。！？；：\n]*", text) for text in texts]
    divided = [clauses for clauses in divided if len(clauses) > 2]
    weights = [len(clauses) for clauses in divided]
    distinct: dict[str, None] = {}
    for clauses in draw.choices(divided, weights, k=4 * number):
        first = draw.randrange(len(clauses))
        crop = "".join(clauses[first : first + draw.randint(1, 5)])[:MAX_QUERY_CHARS].strip("，,；：\n ")
        if len(crop) >= MIN_QUERY_CHARS and crop not in known:
            distinct[crop] = None
        if len(distinct) == number:
            break
    return list(distinct)


if __name__ == "__main__":
    main(*sys.argv[1:])
