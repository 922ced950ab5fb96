"""Time and memory of a whole build: texts, pools, judges, labels, edition.

    python benchmarks/build.py --texts OPEN --out /tmp/built --queries 1000

Queries and documents are real questions and answers. The three judges are stand-ins that look for shared
words, behind a server in a process of its own; what they take is not the memory of the build, but they share
its cores. Memory is the largest resident set of the building process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, texts: list[str]) -> None:
    kept = list(dict.fromkeys(texts))
    lines = [json.dumps({"_id": f"t{i}", "text": text}, ensure_ascii=False) for i, text in enumerate(kept)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def steps(passages: int) -> list[dict]:
    """The steps of the build."""
    texts = {"queries": "queries", "documents": "documents"}
    return [
        {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
        {"step": "anonymize", "name": "anonymous", "in": "documents.jsonl"},
        {"step": "dedup", "name": "documents", "in": "anonymous"},
        {
            "step": "pool",
            **texts,
            "retrievers": ["bm25", "bm25:jieba"],
            "size": passages,
            "depth": passages,
        },
        {"step": "judge", **texts, "pools": "pool"},
        {"step": "consensus", "name": "labels", "in": "judge"},
        {
            "step": "assemble",
            "labels": "labels",
            **texts,
            "edition": "built",
            "licence": "apache-2.0",
            "test": 0.3,
        },
    ]


def prepare(options: argparse.Namespace, url: str) -> Path:
    """The files of the build."""
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = rows(options.texts / "train" / "pairs.jsonl")
    queries, documents = [row["query"] for row in pairs], [row["positive"] for row in pairs]
    for folder in sorted((options.texts / "eval").iterdir()):
        queries += [row["text"] for row in rows(folder / "queries.jsonl")]
        documents += [row["text"] for row in rows(folder / "corpus.jsonl")]
    queries = list(dict.fromkeys(queries))[: options.queries]
    write(options.out / "queries.jsonl", queries)
    write(options.out / "documents.jsonl", documents)
    judges = [
        {"name": name, "model": f"rule-{name}", "base_url": url, "concurrency": 32, "passages": 10}
        for name in ("words", "generous", "strict")
    ]
    file = options.out / "build.yaml"
    content = {"out": "build", "judges": judges, "steps": steps(options.passages)}
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    return file


def main() -> None:
    """Run the build, and print what it took."""
    parser = argparse.ArgumentParser(description="Time and memory of a whole build.")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--passages", type=int, default=100)
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "rule_judges.py"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        file = prepare(options, server.stdout.readline().split()[-1])
        start = time.monotonic()
        command = [sys.executable, "-m", "medteb_mteb.cli", "build", str(file), "--json", "-q"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        report = json.loads(child.stdout.read())
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        server.terminate()
    print(
        json.dumps(
            {
                "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                "exit": os.waitstatus_to_exitcode(status),
                "seconds": round(time.monotonic() - start, 1),
                "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
                "largest_resident_set_mib": round(usage.ru_maxrss / 1024),
                "steps": [
                    {"name": step["name"], "seconds": round(step["seconds"], 1)} for step in report["steps"]
                ],
                "report": report,
            },
            ensure_ascii=False,
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
