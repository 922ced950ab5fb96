"""Runs and judgements in TREC's formats and in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.data.trec import RunError, read_run, write_run
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIXES = {b"t": "trec", b"j": "json"}


def prepare(folder: Path) -> Target:
    """Set up the target: run files."""

    def check(data: bytes) -> str:
        path = folder / f"run.{_SUFFIXES.get(data[:1], 'trec')}"
        path.write_bytes(data[1:])
        run = read_run(path)
        again = folder / "again.json"
        write_run(again, run)
        assert read_run(again) == run
        if path.suffix == ".trec":
            write_run(folder / "again.trec", run)
            assert read_run(folder / "again.trec") == run
        return f"{path.suffix} {len(run)} queries"

    trec = b"q1 Q0 d1 1 3.5 tag\nq1 Q0 d2 2 3.5 tag\nq2\tQ0\td1\t0\t-1e-3\ttag\n\n"
    runs = [
        b'{"q1": {"d1": 1.5, "d2": -1}, "q2": {"d1": 0}}',
        b'{"mteb_model_meta": {"model_name": "m"}, "default": {"test": {"q1": {"d1": 0.5}}}}',
    ]
    words = (b"Q0", b"q1", b"d1", b"\t", b"  ", b"1e400", b"nan", b"inf", b"-0", b"1_0", b"\xef\xbb\xbf",
    "\u2028".encode(), "²".encode(),
             "\u00a0".encode(), b"\x1c", "١".encode(), b"0" * 5000)  # fmt: skip
    seeds = [b"t" + trec, b"t" + trec.replace(b"\n", b"\r\n"), *(b"j" + run for run in runs)]
    return Target(seeds, check, (RunError,), words=words)
