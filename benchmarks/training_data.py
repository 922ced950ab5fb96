"""Memory and time of reading training data: checking pairs, planning batches, reading rows.

    python benchmarks/training_data.py --pairs 10000000 --folder /tmp/pairs

Each phase runs in the same process, as in `mar train`; its peak is what the kernel counted for the process
(resident memory, mapped pages included). A second run finds the converted table and maps it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

SYMPTOMS = ("头疼", "发热", "咳嗽", "胃痛", "失眠", "皮疹", "胸闷", "腹泻")
ANSWER = (
    "建议多休息、多饮水，注意监测体温和血压；若症状持续三天以上或加重，应到{}科就诊，由医生判断是否用药。"
)


def write_pairs(path: Path, number: int) -> None:
    """Write pairs of a question and an answer of about 100 characters, with a few repeated answers."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as stream:
        for row in range(number):
            symptom = SYMPTOMS[row % len(SYMPTOMS)]
            query = f"{symptom}{row}天了怎么办，需要吃药吗"
            answer = f"{symptom}{row - row % 97 if row % 10 == 0 else row}：" + ANSWER.format(row % 40)
            stream.write(f'{{"query": "{query}", "positive": "{answer}"}}\n')
    part.replace(path)


def peak_gb() -> float:
    """Most resident memory of this process so far, in GB (10^9 bytes)."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e9


def measure(path: Path, *, batch_size: int, groups: int, steps: int) -> dict[str, Any]:
    """Seconds and peak memory of every phase."""
    from mar_st.data import distinct_texts, read_source, to_dataset
    from mar_st.recipes.schema import Data
    from mar_st.stages.samplers import TrainRows, train_batches

    phases: dict[str, Any] = {"imports": {"seconds": 0.0, "peak_gb": round(peak_gb(), 2)}}
    start = time.perf_counter()

    def phase(name: str) -> None:
        nonlocal start
        now = time.perf_counter()
        phases[name] = {"seconds": round(now - start, 1), "peak_gb": round(peak_gb(), 2)}
        print(f"{name}: {phases[name]}", flush=True)
        start = time.perf_counter()

    source = read_source(Data(name="pairs", path=str(path), prompt=""), 42)
    phase("read and checked")
    data = {"pairs": to_dataset(source.triples, negatives=0, seed=42)}
    phase("columns")
    rows, batches = TrainRows(data), train_batches(data, batch_size, groups=groups, seed=42)
    phase("batches planned (keys of all texts, lengths)")
    first = [len(rows.__getitems__(batch)) for batch in islice(batches, steps)]
    phase(f"{steps} batches of {batch_size} rows read")
    queries, documents = distinct_texts(source.triples)
    phase("distinct texts (align)")
    counts = {"pairs": len(source.triples), "queries": len(queries), "documents": len(documents)}
    return {"phases": phases, **counts, "batches": first[:1] * len(first)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=19_200)
    parser.add_argument("--length-groups", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"pairs-{options.pairs}.jsonl"
    if not path.is_file():
        write_pairs(path, options.pairs)
    os.environ.setdefault("MAR_DATA_CACHE", str(options.folder / "cache"))
    result = measure(path, batch_size=options.batch_size, groups=options.length_groups, steps=options.steps)
    result |= {"file_gb": round(path.stat().st_size / 1e9, 2), "peak_gb": round(peak_gb(), 2)}
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
