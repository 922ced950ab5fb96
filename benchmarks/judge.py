"""Throughput of judging against an endpoint's own limit.

    python benchmarks/judge.py                        # 64 at once, answers of half a second
    python benchmarks/judge.py --latency 2 --seconds 30

The endpoint (`tests/medteb_mteb/curation/judge/fault_server.py`, without faults, in its own process) makes
`--concurrency` answers at once and takes `--latency` seconds for each, so it cannot give more than
concurrency / latency answers a second. The share is what `medteb judge` reaches of that, from the first
request to the last answer; next to it the same requests sent by the bare `openai` client, as many at once,
with nothing read, written or limited: what a client in Python can reach on the machine. CPU time is that of
the asking process, imports left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULT_SERVER = ROOT / "tests" / "medteb_mteb" / "curation" / "judge" / "fault_server.py"


def load(path: Path):
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    return sys.modules[path.stem]


class Clock:
    """When the first request arrived and the last answer was sent, and what was asked."""

    def __init__(self, endpoint) -> None:
        self.endpoint, self.first, self.last = endpoint, 0.0, 0.0
        respond = endpoint.respond

        async def timed(call, writer):
            if call.path == "/v1/account":
                rules = load(ROOT / "examples" / "rule_judges.py")
                totals = {"first": self.first, "last": self.last, "made": endpoint.made}
                totals |= {"busiest": endpoint.busiest, "sold": sum(endpoint.sold.values())}
                totals |= {"most": max(endpoint.sold.values(), default=0)}
                writer.write(rules.Answer(200, {**totals, "bodies": endpoint.bodies}).encoded())
                await writer.drain()
                return True
            self.first = self.first or time.monotonic()
            open_still = await respond(call, writer)
            self.last = time.monotonic()
            return open_still

        endpoint.respond = timed


def serve(concurrency: int, latency: float, pipe) -> None:
    load(ROOT / "examples" / "rule_judges.py")
    faults = load(FAULT_SERVER)
    from medteb_mteb.curation.judge.prompt import CONTROLS, ECHOES

    endpoint = faults.FaultEndpoint(latency=latency, capacity=concurrency, controls=(*CONTROLS, *ECHOES))
    Clock(endpoint)

    async def main() -> None:
        async with faults.rules.listening(endpoint) as url:
            pipe.send(url)
            await asyncio.Event().wait()

    asyncio.run(main())


def account(url: str) -> dict:
    import urllib.request

    with urllib.request.urlopen(f"{url}/account") as answer:
        return json.load(answer)


def write_input(folder: Path, requests: int, passages: int) -> tuple[Path, Path, Path]:
    """One query for every ten requests, and enough documents for their pools."""
    queries = max(1, requests // 10)
    documents = 10 * passages
    paths = tuple(folder / f"{name}.jsonl" for name in ("queries", "documents", "pools"))
    subjects = ["高血压", "糖尿病", "偏头痛", "胃溃疡", "过敏性鼻炎", "痛风", "脂肪肝", "肺结节"]
    body = "应在医生指导下用药，定期复查，注意饮食和休息，如有不适及时就诊。" * 4
    rows = (
        [{"_id": f"q{i}", "text": f"{subjects[i % 8]}患者平时要注意什么，第{i}问"} for i in range(queries)],
        [{"_id": f"d{i}", "text": f"{subjects[i % 8]}患者{body}第{i}条"} for i in range(documents)],
        [{"query-id": f"q{i}", "corpus-ids": [f"d{n}" for n in range(documents)]} for i in range(queries)],
    )
    for path, some in zip(paths, rows, strict=True):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some), encoding="utf-8")
    return paths


def bare(url: str, bodies: list[dict], concurrency: int) -> float:
    """Answers a second of the bare client, for the same requests."""
    import openai

    async def main() -> float:
        pending = iter(bodies)
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def work() -> None:
                for body in pending:
                    await client.chat.completions.create(**body)

            started = time.monotonic()
            await asyncio.gather(*(work() for _ in range(concurrency)))
            return len(bodies) / (time.monotonic() - started)

    return asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds that an answer takes")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a measurement at the limit")
    parser.add_argument("--passages", type=int, default=10)
    options = parser.parse_args()

    from medteb_mteb.curation.judge.judges import Judges
    from medteb_mteb.curation.judge.judging import grade_pools
    from medteb_mteb.curation.judge.material import PooledSettings, read_material

    limit = options.concurrency / options.latency
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(options.concurrency, options.latency, there), daemon=True)
    server.start()
    url = here.recv()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queries, documents, pools = write_input(folder, int(limit * options.seconds), options.passages)
        out = folder / "out"
        given = PooledSettings(
            queries=queries, documents=documents, pools=pools, out=out, already_anonymous=True
        )
        entry = {
            "name": "one", "model": "rule-words", "base_url": url, "passages": options.passages,
            "concurrency": options.concurrency,
        }  # fmt: skip
        config = Judges.model_validate({"judges": [entry]})
        import openai  # noqa: F401 - not part of the measured time

        started, cpu = time.monotonic(), time.process_time()
        report = grade_pools(read_material(given), config, out, folder / "j.sqlite")
        whole, cpu = time.monotonic() - started, time.process_time() - cpu
    totals = account(url)
    reached = totals["made"] / (totals["last"] - totals["first"])
    bare_cpu = time.process_time()
    plain = bare(url, totals["bodies"], options.concurrency)
    bare_cpu = time.process_time() - bare_cpu
    server.terminate()
    grades = totals["sold"] / (totals["last"] - totals["first"])
    assert report["complete"]
    checked = report["judges"][0]["checked"]  # positives, each with a query it cannot answer
    assert (totals["sold"], totals["most"]) == (report["pairs"] + checked, 1), totals
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    load = "load " + " ".join(f"{value:.1f}" for value in os.getloadavg())
    each, bare_each = (1000 * used / totals["made"] for used in (cpu, bare_cpu))
    at_once = f"{options.concurrency} at once, {options.latency:g} s each"
    print(f"limit of the endpoint  {limit:8.1f} answers/s ({at_once}; {load})")
    print(f"medteb judge           {reached:8.1f} answers/s  {reached / limit:6.1%}  {each:5.2f} ms CPU each")
    print(
        f"bare client            {plain:8.1f} answers/s  {plain / limit:6.1%}  {bare_each:5.2f} ms CPU each"
    )
    print(f"grades                 {grades:8.0f} a second")
    print(f"whole command          {whole:8.1f} s for {report['pairs']} pairs, {totals['made']} requests")
    print(f"checked again          {checked:8d} positives")


if __name__ == "__main__":
    main()
