"""Many callers, one encoder: every caller gets its own vectors, and waiting times are bounded."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.online.batcher import Batcher, DeadlinePassed, MicroBatcher, QueueFull


class Fake:
    """Vectors that say which text they are of; can be held back."""

    dim, identity, space, normalised, max_length, prompts = 4, "fake", None, False, 64, {}

    def __init__(self):
        self.calls = []
        self.go, self.entered = threading.Event(), threading.Event()
        self.go.set()

    def encode(self, texts, prompt_name=None):
        self.calls.append(list(texts))
        self.entered.set()
        assert self.go.wait(10)
        if "bad" in texts:
            raise ValueError("bad text")
        rows = [[len(text), sum(map(ord, text)), 1, 1] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, 4)


@pytest.fixture
def fake():
    return Fake()


def held(fake, batcher):
    """Make the thread busy, so that what comes now waits."""
    fake.go.clear()
    first = batcher.submit(["held"])
    assert fake.entered.wait(5)
    return first


def test_many_threads_get_their_own_vectors_in_order(fake):
    with MicroBatcher(fake, max_batch=16) as batcher, ThreadPoolExecutor(16) as pool:

        def ask(number):
            texts = [f"{number}-{i}" * (1 + i % 3) for i in range(number % 40)]
            return texts, batcher.submit(texts).result(10)

        answers = list(pool.map(ask, range(200)))
    assert all(len(texts) <= 16 for texts in fake.calls)
    for texts, vectors in answers:
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, fake.encode(texts))


def test_requests_during_a_batch_form_the_next_one(fake):
    with MicroBatcher(fake) as batcher:
        first = held(fake, batcher)
        others = [batcher.submit([f"t{i}"]) for i in range(5)]
        assert batcher.waiting == 5
        fake.go.set()
        wait([first, *others], timeout=5)
    assert [len(texts) for texts in fake.calls] == [1, 5]


def test_batches_keep_to_the_cost_and_long_requests_take_turns(fake):
    with MicroBatcher(fake, max_tokens=30) as batcher:  # a text of two characters counts 10
        held(fake, batcher)
        long, short = batcher.submit([f"l{i}" for i in range(9)]), batcher.submit(["short"])
        large = batcher.submit(["x" * 100])
        fake.go.set()
        np.testing.assert_array_equal(long.result(5), fake.encode([f"l{i}" for i in range(9)]))
        wait([short, large], timeout=5)
    calls = fake.calls[1:-1]
    assert all(len(texts) <= 3 for texts in calls)
    assert next(place for place, texts in enumerate(calls) if "short" in texts) == 1
    assert ["x" * 100] in calls


def test_a_failing_batch_fails_only_the_bad_request(fake):
    with MicroBatcher(fake) as batcher:
        held(fake, batcher)
        good, bad, also = (batcher.submit(texts) for texts in (["a"], ["b", "bad"], ["c", "d"]))
        fake.go.set()
        assert good.result(5).shape == (1, 4)
        assert also.result(5).shape == (2, 4)
        with pytest.raises(ValueError, match="bad text"):
            bad.result(5)
        assert batcher.submit(["after"]).result(5).shape == (1, 4)


def test_a_failing_request_of_many_batches_is_dropped(fake):
    with MicroBatcher(fake, max_batch=2) as batcher:
        bad = batcher.submit(["bad", *"abcdefgh"])
        with pytest.raises(ValueError, match="bad text"):
            bad.result(5)
        assert batcher.submit(["after"]).result(5).shape == (1, 4)
    assert len(fake.calls) <= 3


def test_the_queue_is_bounded_and_free_again_later(fake):
    with MicroBatcher(fake, max_queue=3) as batcher:
        held(fake, batcher)
        waiting = batcher.submit(["a", "b"])
        with pytest.raises(QueueFull):
            batcher.submit(["c", "d"])
        fits = batcher.submit(["c"])
        fake.go.set()
        assert (len(fits.result(5)), len(waiting.result(5))) == (1, 2)
        # More than may ever wait is taken when nothing else does.
        assert batcher.submit(list("abcdefgh")).result(5).shape == (8, 4)


def test_work_that_would_be_late_is_refused_at_once():
    with Batcher(lambda items: time.sleep(0.02) or items) as batcher:
        batcher.submit([1]).result(5)
        waiting = [batcher.submit(list(range(40))) for _ in range(2)]
        with pytest.raises(QueueFull) as error:
            batcher.submit([1], deadline=time.monotonic() + 0.1)
        assert error.value.seconds > 0.1
        wait(waiting, timeout=5)


def test_late_and_cancelled_requests_are_dropped(fake):
    with MicroBatcher(fake) as batcher:
        held(fake, batcher)
        late = batcher.submit(["late"], deadline=time.monotonic() + 0.01)
        both = batcher.submit(["both"], deadline=time.monotonic() + 0.01)
        cancelled, good = batcher.submit(["gone"]), batcher.submit(["good"], deadline=time.monotonic() + 60)
        assert cancelled.cancel()
        assert both.cancel()
        time.sleep(0.05)
        fake.go.set()
        assert good.result(5).shape == (1, 4)
        with pytest.raises(DeadlinePassed):
            late.result(5)
        with pytest.raises(CancelledError):
            cancelled.result()
        assert batcher.waiting == 0
    assert fake.calls == [["held"], ["good"]]


def test_items_with_different_keys_are_not_mixed():
    calls = []
    gate = threading.Event()

    def work(items):
        gate.wait(5)
        calls.append(items)
        return items

    with Batcher(work) as batcher:
        futures = [batcher.submit([number], key=number % 2) for number in range(9)]
        gate.set()
        assert [future.result(5) for future in futures] == [[number] for number in range(9)]
    assert all(len({item % 2 for item in items}) == 1 for items in calls)
    assert len(calls) <= 4


def test_observers_are_told_before_the_answer(fake):
    seen, snapshots = {}, []
    with MicroBatcher(fake, observe=seen.__setitem__) as batcher:
        future = batcher.submit(["a"])
        future.add_done_callback(lambda _: snapshots.append(dict(seen)))
        future.result(10)
    assert set(snapshots[0]) == {"queue", "size", "work"}


def test_close_finishes_accepted_requests(fake):
    batcher = MicroBatcher(fake, max_batch=2)
    futures = [batcher.submit([f"t{i}"]) for i in range(20)]
    batcher.close()
    assert all(future.done() and future.result().shape == (1, 4) for future in futures)
    with pytest.raises(MarError):
        batcher.submit(["x"])
    batcher.close()


def test_a_text_alone_is_refused_and_no_texts_are_answered(fake):
    with MicroBatcher(fake) as batcher:
        with pytest.raises(TypeError):
            batcher.submit("one string")
        assert batcher.submit([]).result(1).shape == (0, 4)
