"""Every limit of `mar serve` at and beyond its edge, while another client searches continuously.

    python benchmarks/limits.py                       # mar-mini, 5,000 documents; some four minutes
    python benchmarks/limits.py --only max-k values   # some limits
    python benchmarks/limits.py --encoder exported --documents 100000

For each limit a client sends, again and again, a request that is just accepted, then one that is just beyond
the limit. The answers must be as documented. Beside it, another process searches with a short query forty
times a second; it counts from the planned moment, so a server that stands still does not slow down its own
measurement. Its p99 may be 5 times that of a server without other work at most (`--times`).

The exit status is 1 if an answer is wrong or a limit does not hold.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import serve
from limits_client import Probe
from limits_table import FIELDS, LIMITS, Attack
from measured import apart, machine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", help="exported encoder; default: export mar-mini")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=4, help="for each request of a limit")
    parser.add_argument("--times", type=float, default=5, help="p99 beside a limit over p99 without")
    parser.add_argument("--only", nargs="*", help="names of limits")
    parser.add_argument("--app", default="mar", choices=serve.APPS, help="what answers, see serve_stock.py")
    parser.add_argument("--out", type=Path, help="write the table there, too, as JSON lines")
    arguments = parser.parse_args()
    unknown = set(arguments.only or ()) - set(LIMITS)
    if unknown:
        parser.error(f"no limit {', '.join(sorted(unknown))}; there are {', '.join(LIMITS)}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, hard) if hard > 0 else 16_384, hard))
    with tempfile.TemporaryDirectory(prefix="limits-bench-") as folder:
        sys.exit(0 if measure(arguments, Path(folder)) else 1)


def measure(arguments: argparse.Namespace, folder: Path) -> bool:
    """Walk the table; true if all of it holds."""
    encoder = arguments.encoder or str(apart(serve.export_mini, folder / "encoder"))
    index = apart(make_index, folder, encoder, arguments.documents)
    facts = apart(made_texts, encoder)
    options = argparse.Namespace(workers=1, timeout=10, split=False)
    print(f"{machine()}; {arguments.encoder or 'mar-mini'}, {arguments.documents} documents", flush=True)
    server = serve.Server(index, encoder, options, arguments.app)
    good = True
    rows = []
    try:
        with Probe(server.port) as probe:
            time.sleep(3)  # warm
            began = time.monotonic()
            time.sleep(max(8.0, 2 * arguments.seconds))
            idle = probe.since(began)
            print(f"{'limit':14} {'documented':42} {'edge':>10} {'beyond':>10} {'p50':>7} {'p99':>7}  times")
            print(f"{'idle':14} {'':42} {'':>10} {'':>10} {idle.p50:7.1f} {idle.p99:7.1f}", flush=True)
            for name, limit in LIMITS.items():
                if arguments.only and name not in arguments.only:
                    continue
                attack = Attack(server.port, arguments.seconds, facts)
                before = time.monotonic()
                limit.run(attack)
                times = probe.since(before)
                right = attack.right and times.failed == 0
                ratio = times.p99 / idle.p99
                holds = right and ratio <= arguments.times
                good &= holds
                print(
                    f"{name:14} {limit.documented:42} {attack.edge:>10} {attack.beyond:>10} {times.p50:7.1f} "
                    f"{times.p99:7.1f} {ratio:6.1f}{'' if holds else '  FAILS' + attack.wrong}", flush=True,
                )  # fmt: skip
                rows.append(
                    {"limit": name, "documented": limit.documented, "edge": attack.edge,
                     "beyond": attack.beyond, "idle_p50_ms": idle.p50, "idle_p99_ms": idle.p99,
                     "p50_ms": times.p50, "p99_ms": times.p99, "ratio": round(ratio, 2), "holds": holds}
                )  # fmt: skip
                time.sleep(1)
    finally:
        code = server.stop()
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return good and code == 0


def make_index(folder: Path, encoder: str, documents: int) -> str:
    """The index of `benchmarks/serve.py`, with metadata."""
    return str(serve.make_index(folder, encoder, documents, fields=FIELDS))


def made_texts(encoder: str) -> dict[str, Any]:
    """Texts with as many tokens as the encoder takes, and with one more."""
    from mar_st.online import load_query_encoder

    loaded = load_query_encoder(encoder)
    chars = json.loads((serve.TASK / "corpus.jsonl").open(encoding="utf-8").readline())["text"]
    one = next(
        char
        for char in chars
        if loaded.count_tokens([char * 20])[0] - loaded.count_tokens([char * 10])[0] == 10
    )
    extra = loaded.count_tokens([one])[0] - 1
    room = loaded.max_length - extra
    each = min(loaded.max_length, 65_536 // 256)
    within = [one * (each - extra)] * 256
    return {
        "max_length": loaded.max_length,
        "fits": one * room,
        "longer": one * (room + 1),
        "all": within,
        "more": [*within[:-1], one * (each - extra + 1)],
    }


if __name__ == "__main__":
    main()
