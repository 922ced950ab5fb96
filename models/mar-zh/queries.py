"""Write the texts that query encoders are aligned on: questions, what was said after them, pieces of answers.

usage: queries.py data/pairs.jsonl data/texts.jsonl queries.jsonl
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

#: Characters of a text that may stand for a query.
LONGEST, SHORTEST_PART = 100, 8
#: Texts of each kind at most.
TERMS, PARTS = 8_000, 15_000


def main(pairs: str, texts: str, out: str) -> None:
    """Write distinct texts, in an order drawn with a fixed seed."""
    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    all_texts = [json.loads(line)["text"] for line in Path(texts).read_text(encoding="utf-8").splitlines()]
    draw = random.Random(42)
    questions, answers = ({row[name] for row in rows} for name in ("query", "positive"))
    others = [text for text in all_texts if len(text) <= LONGEST and text not in questions | answers]
    terms = [text for text in others if len(text) < SHORTEST_PART]
    parts = sorted({part for answer in answers for part in re.split(r"[。！？；\n]", answer)})
    parts = [part for part in parts if SHORTEST_PART <= len(part) <= LONGEST]
    kept = [
        *sorted(questions),
        *(text for text in others if len(text) >= SHORTEST_PART),
        *draw.sample(terms, min(TERMS, len(terms))),
        *draw.sample(parts, min(PARTS, len(parts))),
    ]
    kept = list(dict.fromkeys(kept))
    draw.shuffle(kept)
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in kept)
    Path(out).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
