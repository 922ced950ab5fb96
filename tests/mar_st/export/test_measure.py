"""Tests of measuring: the process of a variant, timings, memory and cosines."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mar_st.export import measure as measuring
from mar_st.export.measure import CrashError, age, cosines, measure, resident_mb, timings
from tests.mar_st.export.conftest import TEXTS
from tests.mar_st.online.conftest import graph_folder  # noqa: F401 -- fixture


def test_a_crash_is_reported_not_shared(graph_folder):  # noqa: F811
    with pytest.raises(CrashError, match=r"status 1 .*no 'openvino-nix'"):
        measure(graph_folder.path, "openvino-nix", TEXTS)
    assert not list(graph_folder.path.glob("measure-*"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -9 $$", "^computing it ended with signal 9$"),
        ("echo early >&2; echo no memory >&2; exit 3", "^computing it ended with status 3 no memory$"),
    ],
)
def test_the_end_of_the_process_is_one_line(tmp_path, monkeypatch, script, message):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setattr(measuring.sys, "executable", str(program))
    with pytest.raises(CrashError, match=message):
        measure(tmp_path, "onnx-fp32", TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


def test_cosines_are_computed_row_by_row():
    first = np.array([[1, 0], [1, 1]], dtype=np.float32)
    second = np.array([[2, 0], [1, -1]], dtype=np.float32)
    np.testing.assert_allclose(cosines(first, second), [1, 0], atol=1e-12)


@pytest.mark.filterwarnings("error")
def test_cosines_of_zeros_and_large_vectors_are_finite():
    vectors = np.array([[0, 0], [1e30, 1e30]], dtype=np.float32)
    np.testing.assert_allclose(cosines(vectors, vectors), [0, 1], atol=1e-12)


def test_every_text_is_timed_alone_after_a_round_that_does_not_count(monkeypatch):
    calls, clock = [], [0.0]

    def call(texts):
        calls.append(list(texts))
        clock[0] += 4.0 if len(calls) <= 2 else 0.25  # the first calls are slow, as those of a runtime are

    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock[0])
    assert timings(call, ["a", "b"], rounds=3) == [0.25] * 6
    assert calls == [["a"], ["b"]] * 4


def test_memory_counts_what_is_touched():
    before = resident_mb()
    block = np.ones(64 * 2**20, dtype=np.uint8)
    grown = resident_mb() - before
    assert 50 < grown < 100
    assert block.all()


def test_the_age_of_the_process_grows_with_time():
    times = [time.perf_counter(), age(), time.perf_counter()]
    time.sleep(0.03)
    times += [time.perf_counter(), age(), time.perf_counter()]
    grown = times[4] - times[1]
    assert times[3] - times[2] - 0.01 <= grown <= times[5] - times[0] + 0.01
    assert times[1] > 0.1  # it includes the start of Python and the imports
