"""Queues of a batcher: pieces of requests take turns, and their results are put together."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from mar_st.online.waiting import (
    DeadlinePassed,
    EncodeRequest,
    QueueFull,
    RequestQueue,
    RequestQueues,
    check_deadline,
    cut,
    is_short,
)

SIZES = {"max_texts": 2, "max_tokens": 100, "max_length": 64}


def request(texts, *, prompt=None, seconds=None, **sizes):
    made = EncodeRequest(prompt, None if seconds is None else time.monotonic() + seconds)
    cut(made, list(texts), **(SIZES | sizes))
    return made


def queue_of(*requests, limit=1000):
    queue = RequestQueue(limit)
    for one in requests:
        queue.add(one)
    return queue


def taken(queue, *limits):
    return ["".join(piece.texts) for piece in queue.take(*limits)[0]]


def vectors_of(piece):
    return np.array([[ord(text[0])] for text in piece.texts], dtype=np.float32)


@pytest.mark.parametrize("max_texts", [1, 3, 64])
@pytest.mark.parametrize("max_tokens", [1, 40, 8192])
def test_pieces_hold_all_texts_in_order_within_the_limits(max_texts, max_tokens):
    texts = ["x" * (number % 7 * 9) + str(number) for number in range(20)]
    made = request(texts, max_texts=max_texts, max_tokens=max_tokens)
    assert [text for piece in made.pieces for text in piece.texts] == texts
    for piece in made.pieces:
        assert texts[piece.start : piece.start + len(piece.texts)] == piece.texts
        assert len(piece.texts) <= max_texts
        assert piece.tokens <= max_tokens or len(piece.texts) == 1
    assert (made.waiting, made.missing) == (20, 20)
    assert made.tokens == sum(piece.tokens for piece in made.pieces)


def test_a_long_text_counts_as_many_tokens_as_the_encoder_takes():
    assert request(["x" * 10**6]).tokens == SIZES["max_length"]
    assert is_short(["x" * 10**6] * 4, 64)
    assert not is_short(["x" * 10**6] * 5, 64)
    assert not is_short(["x"] * 257, 1)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_vectors_are_in_the_order_of_the_texts_whichever_piece_is_first(order):
    made = request("abcde")
    assert made.begin()
    pieces = list(made.pieces)
    for place in order:
        assert not made.future.done()
        made.finish(pieces[place].start, vectors_of(pieces[place]))
    assert made.future.result(0).ravel().tolist() == list(map(ord, "abcde"))


def test_only_the_first_error_of_a_request_counts():
    made = request("abc")
    first, second = made.pieces
    made.begin()
    made.finish(first.start, vectors_of(first))
    made.fail(ValueError("first"))
    made.fail(KeyError("second"))
    made.finish(second.start, vectors_of(second))
    with pytest.raises(ValueError, match="first"):
        made.future.result(0)
    assert not made.begin()


def test_work_of_a_cancelled_request_is_not_begun():
    made = request("abc")
    assert made.future.cancel()
    assert not made.begin()
    made.fail(ValueError("late"))
    with pytest.raises(CancelledError):
        made.future.result(0)


def test_requests_take_turns_by_pieces():
    queue = queue_of(request("abcdef"), request("xy"), request("z"))
    assert [taken(queue, 2, 1000) for _ in range(6)] == [["ab"], ["xy"], ["z"], ["cd"], ["ef"], []]
    assert (len(queue), queue.texts) == (0, 0)


@pytest.mark.parametrize(
    ("max_texts", "max_tokens", "first"),
    [
        (5, 1000, ["ab", "xy", "z"]),
        (4, 1000, ["ab", "xy"]),
        (5, 40, ["ab", "xy"]),
        (3, 1000, ["ab"]),
        (1, 1, ["ab"]),
    ],
)
def test_a_batch_is_within_its_limits_and_never_empty(max_texts, max_tokens, first):
    queue = queue_of(request("ab"), request("xy"), request("z"))  # 18, 18 and 9 tokens
    assert taken(queue, max_texts, max_tokens) == first
    assert first + taken(queue, 5, 1000) == ["ab", "xy", "z"]


@pytest.mark.parametrize(
    ("prompts", "batches"), [("1221", [["a", "d"], ["b", "c"]]), ("1211", [["a", "c"], ["b"], ["d"]])]
)
def test_a_batch_holds_one_prompt_and_the_others_keep_their_places(prompts, batches):
    queue = queue_of(*(request(text, prompt=prompt) for text, prompt in zip("abcd", prompts, strict=True)))
    assert [taken(queue, 2, 1000) for _ in batches] == batches
    assert queue.texts == 0


def test_cancelled_and_late_requests_leave_the_queue():
    late, gone, failed, good = (
        request("abc", seconds=-1),
        request("de"),
        request("f"),
        request("g", seconds=60),
    )
    queue = queue_of(late, gone, failed, good)
    gone.future.cancel()
    failed.fail(ValueError())
    batch, dropped = queue.take(10, 1000)
    assert [piece.request for piece in batch] == [good]
    assert dropped == [late]
    assert (len(queue), queue.texts) == (0, 0)
    assert not good.future.cancel()  # it is being computed


def test_a_full_queue_refuses_more_until_texts_are_taken():
    queue = queue_of(request("abcd"), limit=3)  # alone, it may exceed the limit
    with pytest.raises(QueueFull, match=r"no room for 1 more texts \(4 of 3 are waiting\)"):
        queue.add(request("e"))
    queue.take(2, 1000)
    queue.add(request("e"))
    assert queue.texts == 3
    assert len(queue.clear()) == 2
    assert (len(queue), queue.texts) == (0, 0)


def test_short_and_long_requests_take_turns_and_share_no_batch():
    queues = RequestQueues(1000)
    for text in "abc":
        queues.add(request(text))
    for text in "XY":
        queues.add(request([text * 60] * 6))
    assert queues.texts == 15
    batches = []
    while batch := queues.take(1, 1000, 64)[0]:
        batches.append("".join(piece.texts[0][0] for piece in batch))
    assert batches == ["a", "X", "b", "Y", "c", *"XYXYXYXYXY"]


def test_a_deadline_stops_work_only_after_it_has_passed():
    check_deadline(None)
    check_deadline(time.monotonic() + 60)
    with pytest.raises(DeadlinePassed):
        check_deadline(time.monotonic() - 0.001)
