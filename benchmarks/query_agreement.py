"""Measures whether a query encoder is limited by its size or by the number of texts it was aligned on.

    python benchmarks/query_agreement.py --teacher STAGE/model --model ALIGNED/model \
        --texts queries.jsonl data/eval/toyhom-retrieval/queries.jsonl

Prints the mean cosine between the query vectors of each `--model` and of the `--teacher` on a sample of each
file of texts. Give a file that the encoders were aligned on, and others. If both have the same cosine, more
texts will not help, and a larger encoder may; if the training texts have a higher one, more texts may help.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from mar_st.data import read_texts
from mar_st.model.opening import open_model
from mar_st.spaces.agreement import mean_cosine


def sample(path: Path, number: int, seed: int) -> list[str]:
    """Return at most `number` distinct texts of a file, drawn with a seed."""
    texts = sorted({text for text in read_texts(path) if text.strip()})
    return texts if len(texts) <= number else random.Random(seed).sample(texts, number)


def main() -> None:
    """Measure, and print one JSON line per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--model", nargs="+", required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    files = {str(path): sample(path, options.number, options.seed) for path in options.texts}
    teacher = open_model(options.teacher, device="cpu").float()
    targets = {name: teacher.encode_query(texts) for name, texts in files.items()}
    del teacher
    for source in options.model:
        model = open_model(source, routes="query", device="cpu").float()
        cosines = {
            name: round(mean_cosine(model.encode_query(texts), targets[name]), 4)
            for name, texts in files.items()
        }
        print(json.dumps({"model": source, "cosine": cosines}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
