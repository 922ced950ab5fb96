"""The constraints of a synthetic example (BMRetriever, prompt of the pairs), and their draw.

The paper requests English texts and counts words. For Chinese, the same grid counts characters, 1.6 per
English word. That choice is ours; nothing is published for Chinese.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, NamedTuple

from medteb_mteb.curation.step import SEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.synthetic.forms import Language


class Constraints(NamedTuple):
    """A cell of the grid, with the names of the paper."""

    query_type: str
    query_length: str
    clarity: str
    num_words: str
    difficulty: str


#: The published values.
GRID: dict[str, tuple[str, ...]] = {
    "query_type": ("extremely long-tail", "long-tail", "common"),
    "query_length": ("less than 5 words", "5-10 words", "at least 10 words"),
    "clarity": ("clear", "understandable with some effort", "ambiguous"),
    "num_words": ("50 words", "50-100 words", "200 words", "300 words", "400 words"),
    "difficulty": ("high school", "college", "PhD"),
}
_CHINESE: dict[str, str] = {
    "extremely long-tail": "极为罕见、极少有人查找",
    "long-tail": "少见、不常有人查找",
    "common": "常见",
    "less than 5 words": "少于8个字",
    "5-10 words": "8到16个字",
    "at least 10 words": "至少16个字",
    "clear": "清楚",
    "understandable with some effort": "稍加思考才能明白",
    "ambiguous": "含糊、有歧义",
    "50 words": "80个字",
    "50-100 words": "80到160个字",
    "200 words": "320个字",
    "300 words": "480个字",
    "400 words": "640个字",
    "high school": "高中",
    "college": "大学",
    "PhD": "博士",
}
#: Least and most words, and characters in Chinese. The longest query has no published limit; the 40 is ours.
LENGTHS: Mapping[Language, Mapping[str, tuple[int, int]]] = {
    "en": {
        "less than 5 words": (1, 4),
        "5-10 words": (5, 10),
        "at least 10 words": (10, 40),
        "50 words": (50, 50),
        "50-100 words": (50, 100),
        "200 words": (200, 200),
        "300 words": (300, 300),
        "400 words": (400, 400),
    },
    "zh": {
        "less than 5 words": (1, 7),
        "5-10 words": (8, 16),
        "at least 10 words": (16, 64),
        "50 words": (80, 80),
        "50-100 words": (80, 160),
        "200 words": (320, 320),
        "300 words": (480, 480),
        "400 words": (640, 640),
    },
}

_CELLS = tuple(Constraints(*cell) for cell in itertools.product(*GRID.values()))


def draw(task: str, number: int) -> list[tuple[Constraints, str]]:
    """Return the constraints of a task's examples, each with the variant of its prompt.

    Every cell of the grid is used once before any is used twice; the second prompt of a cell has another
    variant and therefore gets another answer. The draw depends only on the task, and a smaller number of
    examples uses the first cells of a larger one: answers already paid for stay valid with more tasks or more
    examples of each.

    Args:
        task: The task sentence.
        number: Number of examples of the task.
    """
    order = list(_CELLS)
    random.Random(f"{SEED}\0{task}").shuffle(order)
    return [(order[i % len(order)], str(i // len(order))) for i in range(number)]


def described(constraints: Constraints, language: Language) -> Mapping[str, str]:
    """Return the constraints in the words of a prompt, by their names."""
    values = constraints._asdict()
    return {name: _CHINESE[value] for name, value in values.items()} if language == "zh" else values
