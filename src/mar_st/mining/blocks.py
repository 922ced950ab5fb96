"""Blocks of mining: results for some queries, kept in files so that a killed run resumes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mar_st.files import JsonError, read_json, write_json
from mar_st.mining.rules import Picked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mar_st.mining.rules import MinedQuery

__all__ = ["BlockResult", "claim", "read_block", "score_sums", "write_block"]


@dataclass
class BlockResult:
    """Result for some queries: picked documents and consistent positives of each, and counts."""

    picked: list[Picked]
    consistent: list[tuple[int, ...]]
    dropped: Counter[str]
    sums: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the content of a block's file."""
        return {
            "mined": [picked.mined for picked in self.picked],
            "filled": [picked.filled for picked in self.picked],
            "consistent": self.consistent,
            "dropped": self.dropped,
            "sums": self.sums,
        }

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> BlockResult:
        """Return the block of a file's content."""
        pairs = zip(content["mined"], content["filled"], strict=True)
        return cls(
            [Picked(*pair) for pair in pairs],
            [tuple(positives) for positives in content["consistent"]],
            Counter(content["dropped"]),
            content["sums"],
        )


def score_sums(
    questions: Sequence[MinedQuery], picked: Sequence[Picked], scores: Sequence[dict[int, float]]
) -> dict[str, float]:
    """Return the sum and the number of scores of positives and of mined negatives.

    Args:
        questions: Queries with their positives.
        picked: Documents picked for each query.
        scores: Scores of each query's documents, by number; documents without a score do not count.
    """
    sums = {"positives": 0.0, "mined negatives": 0.0}
    sums |= {f"{name} (number)": 0.0 for name in sums}
    for question, one, known in zip(questions, picked, scores, strict=True):
        for name, documents in (("positives", question.positives), ("mined negatives", one.mined)):
            values = [known[document] for document in documents if document in known]
            sums[name] += sum(values)
            sums[f"{name} (number)"] += len(values)
    return sums


def claim(work: Path, identity: dict[str, Any]) -> None:
    """Take a work folder, and delete the blocks that other settings or data have left in it."""
    marker = work / "settings.json"
    if marker.is_file() and _content(marker) == identity:
        return
    work.mkdir(parents=True, exist_ok=True)
    for old in work.glob("block-*.json"):
        old.unlink()
    write_json(marker, identity, indent=None)


def read_block(work: Path | None, start: int) -> BlockResult | None:
    """Return the block that begins with a query, if an earlier run has finished it; a damaged one is not."""
    if work is None or not (path := _path(work, start)).is_file():
        return None
    try:
        return BlockResult.of_json(_content(path))
    except (KeyError, TypeError, ValueError):
        return None


def write_block(work: Path | None, start: int, block: BlockResult) -> None:
    """Write a finished block; without a work folder nothing is kept."""
    if work is not None:
        write_json(_path(work, start), block.to_json(), indent=None)


def _content(path: Path) -> Any:
    """Return the content of a file, `None` if it is damaged."""
    try:
        return read_json(path)
    except JsonError:
        return None


def _path(work: Path, start: int) -> Path:
    return work / f"block-{start:09d}.json"
