"""Measure precision, recall and speed of finding identifiers.

python -m benchmarks.anonymize [MARKED ...] [--texts FILE.jsonl] [--count 20000]

MARKED: files of sentences marked by hand; default: those of the tests. With --texts the speed is measured on
the column `text` of a JSONL file, and every match is printed in its context, so that a person can count the
wrong ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.anonymize.evaluate import Quality

LABELLED = Path(__file__).parents[1] / "tests/medteb_mteb/curation/anonymize/labelled"


def quality_table(result: Quality) -> str:
    """Return precision and recall by kind, as text for a terminal."""
    rows = result.to_json()
    head = (
        f"{'kind':14}{'marked':>8}{'found':>7}{'precision':>11}{'recall':>8}{'exact p.':>10}{'exact r.':>10}"
    )
    lines = [head]
    for kind, row in [*rows["kinds"].items(), ("all", rows["all"])]:
        lines.append(
            f"{kind:14}{row['marked']:>8}{row['found']:>7}{row['precision']:>11.3f}{row['recall']:>8.3f}"
            f"{row['precision_exact']:>10.3f}{row['recall_exact']:>10.3f}"
        )
    lines.append(
        f"{rows['sentences']} sentences; of {rows['plain']} without identifiers {rows['disturbed']} were "
        f"changed; {rows['covered']:.1%} of the identifiers' characters were found.\n"
        "Right: same kind, and at least "
        f"{rows['overlap']:.0%} of the longer span in common; exact: same kind, start and end."
    )
    return "\n".join(lines)


def summary(results: dict[str, Quality]) -> str:
    """Return the table of the documentation: a row for each file."""
    lines = [
        "| sentences marked by hand | identifiers | precision | recall | of names | of numbers, addresses |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, result in results.items():
        others = [kind for kind in result.marked if kind != "NAME"]
        rest = sum(result.near[kind] for kind in others) / max(sum(result.marked[kind] for kind in others), 1)
        lines.append(
            f"| `{name}` | {result.marked.total()} | {result.precision():.3f} | {result.recall():.3f} "
            f"| {result.recall('NAME'):.3f} | {rest:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print precision and recall by kind, then texts per second of processor time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("marked", nargs="*", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--count", type=int, default=20_000)
    arguments = parser.parse_args()

    from tools.anonymize.evaluate import quality, read_marked

    from medteb_mteb.curation.anonymize.find import Finder

    finder = Finder()
    sentences, results = [], {}
    for file in arguments.marked or sorted(LABELLED.glob("*.txt")):
        marked = read_marked(file)
        sentences += marked
        results[file.stem] = quality(marked, finder)
        print(f"{file.name}\n{quality_table(results[file.stem])}\n")
    print(f"{summary(results)}\n")

    source = [sentence.text for sentence in sentences]
    if arguments.texts:
        with arguments.texts.open(encoding="utf-8") as lines:
            source = [json.loads(line)["text"] for line in islice(lines, arguments.count)]
    texts = source if arguments.texts else list(islice(cycle(source), arguments.count))
    counts: Counter[str] = Counter()
    start = time.process_time()
    found = [(text, finder(text)) for text in texts]
    elapsed = time.process_time() - start
    counts.update(span.kind for _, spans in found for span in spans)
    for text, spans in found if arguments.texts else ():
        for start, end, kind in spans:
            print(
                kind,
                f"{text[max(0, start - 15) : start]}【{text[start:end]}】{text[end : end + 15]}".replace(
                    "\n", " "
                ),
            )
    length = sum(map(len, texts)) / len(texts)
    print(f"Finder: {len(texts) / elapsed:,.0f} texts/s of one core ({length:.0f} characters each)")
    print(f"found: {dict(counts.most_common())}")


if __name__ == "__main__":
    main()
