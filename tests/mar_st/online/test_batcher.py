"""Many callers, one encoder: every caller gets its own vectors, and waiting times are bounded."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.online.batcher import Closed, DeadlinePassed, MicroBatcher, QueueFull


class Fake:
    """Vectors that say which text they are of; can be held back."""

    dim, identity, space, normalised, max_length = 4, "fake", None, False, 64

    def __init__(self, seconds=0.0):
        self.prompts = {"query": "", "other": "o"}
        self.seconds, self.calls = seconds, []
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()

    def encode(self, texts, prompt_name=None):
        self.calls.append((list(texts), prompt_name))
        self.entered.set()
        assert self.go.wait(10)
        time.sleep(self.seconds)
        if "bad" in texts:
            raise ValueError("bad text")
        rows = [[len(t), sum(map(ord, t)), hash(prompt_name) % 7, 1] for t in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, 4)

    def count_tokens(self, texts):
        return [len(text) for text in texts]


def held(fake, batcher):
    """Make the worker busy, so that what comes now waits."""
    fake.go.clear()
    first = batcher.submit(["held"])
    assert fake.entered.wait(5)
    return first


def test_many_threads_get_their_own_vectors_in_order():
    fake = Fake(0.001)
    with MicroBatcher(fake, max_batch=16, workers=2) as batcher, ThreadPoolExecutor(16) as pool:

        def ask(number):
            texts = [f"{number}-{i}" * (1 + i % 3) for i in range(number % 40)]
            return texts, batcher.submit(texts).result(10)

        answers = list(pool.map(ask, range(200)))
    for texts, vectors in answers:
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
        np.testing.assert_array_equal(vectors, fake.encode(texts))
    assert all(len(texts) <= 16 for texts, _ in fake.calls[:-200])


def test_requests_during_a_batch_form_the_next_one():
    fake = Fake()
    with MicroBatcher(fake) as batcher:
        first = held(fake, batcher)
        others = [batcher.submit([f"t{i}"]) for i in range(5)]
        fake.go.set()
        wait([first, *others], timeout=5)
    assert [len(texts) for texts, _ in fake.calls] == [1, 5]


def test_a_lone_caller_does_not_wait():
    seen = {}
    with MicroBatcher(Fake(), window_ms=5000, observe=seen.setdefault) as batcher:
        started = time.monotonic()
        for _ in range(3):
            batcher.submit(["a"]).result(5)
        assert time.monotonic() - started < 2
    assert set(seen) == {"queue_seconds", "batch_size", "encode_seconds"}


def test_a_failing_batch_fails_only_the_bad_request():
    fake = Fake()
    with MicroBatcher(fake) as batcher:
        held(fake, batcher)
        good, bad, also = (batcher.submit(texts) for texts in (["a"], ["b", "bad"], ["c", "d"]))
        fake.go.set()
        assert good.result(5).shape == (1, 4)
        assert also.result(5).shape == (2, 4)
        with pytest.raises(ValueError, match="bad text"):
            bad.result(5)
        assert batcher.submit(["after"]).result(5).shape == (1, 4)


def test_the_queue_is_bounded_and_free_again_later():
    fake = Fake()
    with MicroBatcher(fake, max_queue=3) as batcher:
        held(fake, batcher)
        waiting = batcher.submit(["a", "b"])
        with pytest.raises(QueueFull, match=r"no room for 2 more texts \(2 of 3 are waiting\)"):
            batcher.submit(["c", "d"])
        fits = batcher.submit(["c"])
        fake.go.set()
        assert (len(fits.result(5)), len(waiting.result(5))) == (1, 2)
        # More than may ever wait is taken when nothing else does.
        assert batcher.submit(list("abcdefgh")).result(5).shape == (8, 4)


def test_requests_past_their_deadline_are_dropped():
    fake = Fake()
    with MicroBatcher(fake) as batcher:
        held(fake, batcher)
        late = batcher.submit(["late"], deadline=time.monotonic() - 1)
        good = batcher.submit(["good"], deadline=time.monotonic() + 60)
        fake.go.set()
        with pytest.raises(DeadlinePassed):
            late.result(5)
        assert good.result(5).shape == (1, 4)
        assert batcher.waiting == 0
    assert not any("late" in texts for texts, _ in fake.calls)


def test_cancelled_work_is_skipped():
    fake = Fake()
    with MicroBatcher(fake) as batcher:
        held(fake, batcher)
        cancelled, good = batcher.submit(["gone"]), batcher.submit(["good"])
        assert cancelled.cancel()
        fake.go.set()
        assert good.result(5).shape == (1, 4)
        done, _ = wait([cancelled], timeout=5)
        assert done
        with pytest.raises(CancelledError):
            cancelled.result()
        assert batcher.waiting == 0
    assert not any("gone" in texts for texts, _ in fake.calls)


def test_work_that_is_cancelled_and_late_does_not_stop_the_worker():
    fake = Fake()
    with MicroBatcher(fake) as batcher:
        first = held(fake, batcher)
        for future in [batcher.submit(["late"], deadline=time.monotonic() + 0.01) for _ in range(5)]:
            assert future.cancel()
        time.sleep(0.05)
        fake.go.set()
        first.result(5)
        np.testing.assert_array_equal(batcher.submit(["next"]).result(5), fake.encode(["next"]))


@pytest.mark.thorough
def test_an_encoder_that_answers_at_once_causes_no_race():
    class Instant(Fake):
        def encode(self, texts, prompt_name=None):
            return np.ones((len(texts), 4), dtype=np.float32)

    with MicroBatcher(Instant(), window_ms=0, workers=2) as batcher, ThreadPoolExecutor(8) as pool:
        shapes = list(pool.map(lambda _: batcher.submit(["a"]).result(5).shape, range(5000)))
    assert set(shapes) == {(1, 4)}


def test_close_finishes_accepted_requests():
    fake = Fake(0.01)
    batcher = MicroBatcher(fake, max_batch=2)
    futures = [batcher.submit([f"t{i}"]) for i in range(20)]
    batcher.close()
    assert all(future.done() and future.result().shape == (1, 4) for future in futures)
    with pytest.raises(Closed):
        batcher.submit(["x"])
    batcher.close()


def test_close_without_finishing_fails_waiting_requests():
    fake = Fake()
    batcher = MicroBatcher(fake)
    running = held(fake, batcher)
    waiting = batcher.submit(["x"])
    closer = threading.Thread(target=batcher.close, kwargs={"finish": False})
    closer.start()
    with pytest.raises(Closed):
        waiting.result(5)
    fake.go.set()
    closer.join(5)
    assert running.result(5).shape == (1, 4)


def test_prompts_are_not_mixed():
    fake = Fake()
    with MicroBatcher(fake) as batcher:
        held(fake, batcher)
        futures = [batcher.submit([f"t{i}"], prompt_name="other" if i % 2 else None) for i in range(6)]
        fake.go.set()
        for i, future in enumerate(futures):
            expected = fake.encode([f"t{i}"], "other" if i % 2 else None)
            np.testing.assert_array_equal(future.result(5), expected)
    assert [len(texts) for texts, _ in fake.calls if len(texts) > 1] == [3, 3]


def test_a_long_request_delays_others_by_one_batch_at_most():
    fake = Fake()
    with MicroBatcher(fake, max_batch=2) as batcher:
        held(fake, batcher)
        long, short = batcher.submit([f"l{i}" for i in range(20)]), batcher.submit(["short"])
        fake.go.set()
        np.testing.assert_array_equal(long.result(5), fake.encode([f"l{i}" for i in range(20)]))
        short.result(5)
    order = [texts for texts, _ in fake.calls]
    assert next(i for i, texts in enumerate(order) if "short" in texts) <= 2


def test_observers_are_called_before_the_answer():
    seen = {}
    gate = threading.Event()
    snapshots = []

    def observe(name, value):
        if name == "encode_seconds":
            gate.wait(10)
        seen[name] = value

    with MicroBatcher(Fake(), observe=observe) as batcher:
        future = batcher.submit(["a"])
        future.add_done_callback(lambda _: snapshots.append(dict(seen)))
        gate.set()
        future.result(10)
    assert set(snapshots[0]) == {"queue_seconds", "batch_size", "encode_seconds"}


def test_answers_of_a_batch_are_given_within_a_context():
    inside = []

    class Delivering:
        open = False

        def __enter__(self):
            self.open = True

        def __exit__(self, *_):
            self.open = False

    delivering = Delivering()
    with MicroBatcher(Fake(), delivering=delivering) as batcher:
        for _ in range(2):
            future = batcher.submit(["a"])
            future.add_done_callback(lambda _: inside.append(delivering.open))
            future.result(10)
    assert inside == [True, True]
    assert not delivering.open


def test_a_broken_encoder_or_observer_stops_nothing():
    class Short(Fake):
        def encode(self, texts, prompt_name=None):
            return super().encode(texts, prompt_name)[:-1]

    with MicroBatcher(Short(), observe=lambda *_: 1 / 0) as batcher:
        for _ in range(2):
            with pytest.raises(MarError, match=r"shape \(0, 4\) for 1 texts"):
                batcher.submit(["a"]).result(5)


def test_wrong_arguments_are_refused():
    with pytest.raises(MarError, match="max_batch is at least 1"):
        MicroBatcher(Fake(), max_batch=0)
    with MicroBatcher(Fake()) as batcher:
        with pytest.raises(TypeError):
            batcher.submit("one string")
        assert batcher.submit([]).result(1).shape == (0, 4)
