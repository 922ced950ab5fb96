"""Time and memory of a whole build: texts, pools, judges, labels, edition.

    python benchmarks/build.py --texts OPEN --out /tmp/built --queries 1000
    python benchmarks/build.py --out /tmp/labels --labels 10000

Queries and documents are real questions and answers. The three judges are stand-ins that look for shared
words, behind a server in a process of its own; what they take is not the memory of the build, but they share
its cores. Memory is the largest resident set of the building process. On a machine that does other work its
CPU seconds say more than the wall clock.

`--labels` measures the step from judgements to labels alone: made-up grades of three judges, 100 passages for
each query.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    {"name": "Zhongjing", "licence": "apache-2.0", "url": "https://github.com/SupritYoung/Zhongjing"},
    {"name": "Huatuo-Llama-Med-Chinese", "licence": "apache-2.0"},
]


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
        {"step": "anonymize", "name": "queries", "in": "queries.jsonl", "sources": SOURCES},
        {"step": "anonymize", "name": "anonymous", "in": "documents.jsonl", "sources": SOURCES},
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


def measured(*arguments: str) -> tuple[dict, dict]:
    """Run `medteb`: the JSON that it prints, and what it took."""
    start = time.monotonic()
    command = [sys.executable, "-m", "medteb_mteb.cli", *arguments, "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    report = json.loads(child.stdout.read())
    _, status, usage = os.wait4(child.pid, 0)
    return report, {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "exit": os.waitstatus_to_exitcode(status),
        "seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "written_mb": round(usage.ru_oublock * 512 / 1e6, 1),
        "largest_resident_set_mib": round(usage.ru_maxrss / 1024),
    }


def judgements(folder: Path, queries: int, passages: int) -> None:
    """Grades of three judges that mostly agree."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "judgements.jsonl").open("w", encoding="utf-8") as stream:
        for query in range(queries):
            for document in sorted(draw.sample(range(14_000), passages)):
                grade = draw.choices(range(5), [2, 4, 10, 24, 60])[0]
                for judge in ("generous", "strict", "words"):
                    own = min(4, max(0, grade + draw.choice([0, 0, 0, 0, 1, -1])))
                    row = {"query-id": f"t{query}", "corpus-id": f"t{document}"}
                    stream.write(json.dumps({**row, "judge": judge, "grade": "SABCD"[own]}) + "\n")


def main() -> None:
    """Run the build, or a step of it, and print what it took."""
    parser = argparse.ArgumentParser(description="Time and memory of a whole build.")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--labels", type=int, help="queries of made-up judgements")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--passages", type=int, default=100)
    options = parser.parse_args()
    if options.labels:
        judgements(options.out / "judged", options.labels, options.passages)
        report, took = measured("consensus", str(options.out / "judged"), str(options.out / "labels"))
        print(json.dumps({**took, "labels": report["labels"]}, indent=1))
        return
    if options.texts is None:
        parser.error("give --texts, or --labels")
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "rule_judges.py"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        file = prepare(options, server.stdout.readline().split()[-1])
        report, took = measured("build", str(file), "-q")
    finally:
        server.terminate()
    print(
        json.dumps(
            {
                **took,
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
