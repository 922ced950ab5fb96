"""Fit the weights of `BareName` on manually marked sentences.

    python -m tools.anonymize.fit MARKED ... --texts FILE.jsonl [--out bare-names.json]

In MARKED, names are marked as [[NAME:陈晓燕]]; each sentence is used several times, with other names.
FILE.jsonl holds texts without names of persons (`{"text": ...}`). Medical terms are left out: `is_medical`
rejects them later. The shipped weights were fitted on the sentences of the tests, except `strangers-b.txt`,
and on Chinese questions and answers under open licences.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.anonymize.bare_names import FEATURES, candidates
from medteb_mteb.curation.anonymize.medicine import is_medical
from medteb_mteb.curation.anonymize.words import characters, words
from tools.anonymize.evaluate import read_marked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tools.anonymize.evaluate import Marked

__all__ = ["fit"]

#: Number of times each sentence is used, once with its own names.
COPIES = 12
#: Maximum number of texts without names.
WEIGHTS = Path("src/medteb_mteb/curation/anonymize/words/bare-names.json")
MAX_TEXTS = 4700
RIDGE = 1.0
_NEWTON_STEPS = 30


def fit(marked: Sequence[Marked], texts: Iterable[str], *, seed: int = 0) -> dict[str, float]:
    """Return the weights of a logistic regression with a ridge penalty, by Newton's method.

    Args:
        marked: Sentences with their names marked; unmarked candidates are negatives.
        texts: Texts whose candidates are all negatives.
        seed: Seed of the replacement names.

    Returns:
        The weight of each of `FEATURES`.
    """
    drawn = random.Random(seed)
    rows: list[tuple[float, ...]] = []
    labels: list[bool] = []
    for sentence in marked:
        for copy in range(COPIES):
            text, names = _renamed(sentence, drawn) if copy else _own(sentence)
            for start, end, features in candidates(text):
                is_name = (start, end) in names
                if is_name or not is_medical(text, start, end):
                    rows.append(features)
                    labels.append(is_name)
    for text in texts:
        negatives = [
            features for start, end, features in candidates(text) if not is_medical(text, start, end)
        ]
        rows += negatives
        labels += [False] * len(negatives)
    weights = _newton(np.array(rows), np.array(labels, dtype=np.float64))
    return dict(zip(FEATURES, (round(float(weight), 4) for weight in weights), strict=True))


def _newton(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    weights = np.zeros(rows.shape[1])
    penalty = RIDGE * np.eye(rows.shape[1])
    penalty[0, 0] = 1e-6  # the bias
    for _ in range(_NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        gradient = rows.T @ (labels - chances) - penalty @ weights
        curvature = (rows * (chances * (1 - chances))[:, None]).T @ rows + penalty
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    return weights


def _own(sentence: Marked) -> tuple[str, set[tuple[int, int]]]:
    return sentence.text, {(span.start, span.end) for span in sentence.spans if span.kind == "NAME"}


def _renamed(sentence: Marked, drawn: random.Random) -> tuple[str, set[tuple[int, int]]]:
    """Return the sentence with its Chinese names replaced by others of the same length, and their places."""
    text, position, names = "", 0, set()
    for span in sentence.spans:
        text += sentence.text[position : span.start]
        value = sentence.text[span.start : span.end]
        if (
            span.kind == "NAME"
            and 2 <= len(value) <= 4
            and all("\u4e00" <= char <= "\u9fff" for char in value)
        ):
            value = _name(len(value), drawn)
        if span.kind == "NAME":
            names.add((len(text), len(text) + len(value)))
        text += value
        position = span.end
    return text + sentence.text[position:], names


def _name(length: int, drawn: random.Random) -> str:
    surname = drawn.choice(words("compound")) if length == 4 else _surname(drawn)
    given = characters("surrogate-given") if drawn.random() < 0.6 else characters("given")
    return surname + "".join(drawn.choices(sorted(given), k=length - len(surname)))


def _surname(drawn: random.Random) -> str:
    usual = characters("surrogate-surnames")
    return drawn.choice(sorted(usual if drawn.random() < 0.5 else characters("surnames")))


def _texts(path: Path) -> Iterable[str]:
    with path.open(encoding="utf-8") as lines:
        for line in islice(
            lines, 0, None, math.ceil(sum(1 for _ in path.open(encoding="utf-8")) / MAX_TEXTS)
        ):
            yield json.loads(line)["text"]


def main() -> None:
    """Fit and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("marked", nargs="+", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument(
        "--out", type=Path, default=Path("src/medteb_mteb/curation/anonymize/words/bare-names.json")
    )
    arguments = parser.parse_args()
    sentences = [sentence for path in arguments.marked for sentence in read_marked(path)]
    weights = fit(sentences, _texts(arguments.texts))
    content = {"sentences": len(sentences), "texts": MAX_TEXTS, "weights": weights}
    arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
