"""Judging under faults and kills: compare the labels, and count judgements that are lost or paid twice.

    python benchmarks/judge_faults.py                     # 20,000 judgements, 10 % of each fault
    python benchmarks/judge_faults.py --judgements 2000 --rate 0.05
    python benchmarks/judge_faults.py --forgetful         # an endpoint that ignores Idempotency-Key

First the judgements are made by an endpoint without faults. Then again, by one with all of them (see
`tests/medteb_mteb/curation/judge/fault_server.py`: five of the line, seven of the answer, each with the given
probability), in a process that is killed by SIGKILL some seconds after its first request and started again,
until it ends; and then with `--retry-failed` until nothing has failed, killed in the same way. The endpoint
keeps the account, by (model, query, passage).

Prints: whether `judgements.jsonl` is the same, byte for byte; judgements paid once, twice or more, and lost;
positives that were shown once more with a query they cannot answer (`checks`, which are paid too); kills;
answers made, given again under their key, and grades spoiled by faults; and the time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULT_SERVER = ROOT / "tests" / "medteb_mteb" / "curation" / "judge" / "fault_server.py"
CHILD = """
import sys
from medteb_mteb.curation.judge import judge, load_judges
queries, documents, pools, out, judges, journal, retry = sys.argv[1:]
report = judge(queries, documents, pools, out, load_judges(judges), journal=journal, already_anonymous=True,
               retry_failed=retry == "retry", show_progress=False)
failed = sum(result.outcome.failed.total() for result in report.judges)
assert report.complete, [result.stopped for result in report.judges]
print(failed, flush=True)
"""


def load(path: Path):
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    return sys.modules[path.stem]


def write_input(folder: Path, judgements: int) -> list[Path]:
    """Queries with pools of a hundred documents each; two judges grade them."""
    queries = judgements // 200
    subjects = ["高血压", "糖尿病", "偏头痛", "胃溃疡", "过敏性鼻炎", "痛风", "脂肪肝", "肺结节"]
    intents = ["饮食禁忌", "用药注意", "复查频率", "运动建议"]
    rows = (
        [{"_id": f"q{i}", "text": f"{subjects[i % 8]}的{intents[i % 4]}，第{i}问"} for i in range(queries)],
        [
            {"_id": f"d{i}", "text": f"{subjects[i % 7]}{intents[i % 4]}：请遵医嘱。第{i}条"}
            for i in range(100)
        ],
        [{"query-id": f"q{i}", "corpus-ids": [f"d{n}" for n in range(100)]} for i in range(queries)],
    )
    paths = [folder / f"{name}.jsonl" for name in ("queries", "documents", "pools")]
    for path, some in zip(paths, rows, strict=True):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some), encoding="utf-8")
    return paths


def settings(folder: Path, url: str, timeout: float) -> Path:
    """A file of two judges at an address."""
    common = {
        "base_url": url,
        "concurrency": 32,
        "timeout": timeout,
        "retries": 40,
        "backoff": 0.02,
        "max_pause": 1,
        "max_failed": 1,  # more than a third of the first answers are unusable, on purpose
        "unreadable": None,
    }
    entries = [{"name": name, "model": f"rule-{name}", **common} for name in ("words", "strict")]
    path = folder / f"judges-{url.rsplit(':', 1)[1].split('/')[0]}.yaml"
    path.write_text(json.dumps({"judges": entries}), encoding="utf-8")  # JSON is YAML
    return path


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


def ended(child: subprocess.Popen[str], server, seconds: float | None) -> int | None:
    """Return the number of failures of a finished run; `None` for a run that was killed.

    Args:
        child: The run.
        server: The endpoint it asks.
        seconds: Time from its first request to its kill; `None` lets it live.
    """
    before = server.arrived
    while child.poll() is None and server.arrived == before:
        time.sleep(0.05)
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.wait()
        return None
    if code:
        raise SystemExit(f"a run failed with exit code {code}")
    assert child.stdout is not None
    return int(child.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--judgements", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=0.1, help="probability of each kind of fault")
    parser.add_argument("--kill", type=float, default=3.0, help="seconds between kills, on average")
    parser.add_argument("--kills", type=int, default=40, help="kills at most")
    parser.add_argument("--timeout", type=float, default=1.0, help="of the client; silences last half longer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forgetful", action="store_true", help="ignore Idempotency-Key")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure(options, options.folder or Path(name))


def measure(options: argparse.Namespace, folder: Path) -> None:
    faults = load(FAULT_SERVER)
    from medteb_mteb.curation.judge.controls import CONTROLS, ECHOES

    inputs = write_input(folder, options.judgements)
    clean = faults.FaultEndpoint(controls=(*CONTROLS, *ECHOES))
    with faults.rules.serving(clean) as url:
        plain = time.monotonic()
        file = settings(folder, url, 60)
        ended(start(*inputs, folder / "clean", file, folder / "clean.sqlite", "-"), clean, None)
        plain = time.monotonic() - plain

    draw = random.Random(options.seed)
    server = faults.FaultEndpoint(
        rate=options.rate,
        seed=options.seed,
        hang=1.5 * options.timeout,
        controls=(*CONTROLS, *ECHOES),
        idempotent=not options.forgetful,
    )
    kills = runs = 0
    with faults.rules.serving(server) as url:
        file = settings(folder, url, options.timeout)
        arguments = [*inputs, folder / "out", file, folder / "journal.sqlite"]
        started = time.monotonic()
        failed: int | None = None
        while failed is None or failed:
            wait = draw.uniform(0.5, 2 * options.kill - 0.5) if kills < options.kills else None
            child = start(*arguments, "retry" if failed else "-")
            failures = ended(child, server, wait)
            kills += failures is None
            runs += 1
            failed = failed if failures is None else failures
            if not options.json:
                print(f"run {runs}: {'killed' if failures is None else f'{failures} failed'}", flush=True)
        elapsed = time.monotonic() - started

    same = (folder / "out/judgements.jsonl").read_bytes() == (folder / "clean/judgements.jsonl").read_bytes()
    counts = Counter(server.sold.values())
    query_texts = {json.loads(line)["text"] for line in inputs[0].read_text(encoding="utf-8").splitlines()}
    wanted = sum(query in query_texts for _, query, _ in server.sold)
    result = {
        "judgements": options.judgements,
        "same_labels": same,
        "paid_once": counts[1],
        "paid_twice": sum(number for times, number in counts.items() if times > 1),
        "paid_in_excess": sum((times - 1) * number for times, number in counts.items()),
        "lost": options.judgements - wanted,
        "checks": len(server.sold) - wanted,
        "kills": kills,
        "runs": runs,
        "requests": server.arrived,
        "answers_made": server.made,
        "answers_given_again": server.replayed,
        "grades_spoiled": sum(server.spoiled.values()),
        "faults": dict(sorted(server.faults.items())),
        "seconds": round(elapsed, 1),
        "seconds_without_faults": round(plain, 1),
    }
    result["faults"].pop("", None)
    print(json.dumps(result) if options.json else json.dumps(result, indent=2))
    if not same or result["lost"] or (result["paid_twice"] and not options.forgetful):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
