"""Search threads: callers share calls of the index, and each gets its own hits."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future

import numpy as np
import pytest

from mar_st.index import Index, IndexingError
from mar_st.index.filters import parse_filter
from mar_st.online import DeadlinePassed
from mar_st.serve.engine.searching import PendingSearch, SearchStage, moving, on_loop
from mar_st.serve.metrics import Metrics
from tests.mar_st.serve.fakes import DIM, DOCUMENTS, FakeSearcher, hits_of, vector_of


def search_for(text, k=3, *, seconds=20.0, vector=None, **options):
    """A search that waits on the running event loop."""
    return PendingSearch(
        text, k, options.get("where"), options.get("hybrid", False), options.get("rerank", 0),
        time.monotonic() + seconds, asyncio.get_running_loop().create_future(),
        vector_of(text) if vector is None else vector,
    )  # fmt: skip


def answers_of(searcher, make, *, max_batch=8):
    """Hits, or errors, of searches that are all queued before the first one starts."""

    async def run():
        stage = SearchStage(searcher, max_batch=max_batch, metrics=Metrics())
        try:
            searches = make()
            with stage.filling:
                for search in searches:
                    stage.put(search)
            async with asyncio.timeout(20):
                return await asyncio.gather(*(search.answer for search in searches), return_exceptions=True)
        finally:
            stage.close()

    return asyncio.run(run())


def as_json(hits):
    return [hit.to_json() for hit in hits]


@pytest.mark.parametrize(("max_batch", "sizes"), [(8, [5]), (2, [2, 2, 1]), (1, [1] * 5)])
def test_equal_searches_share_calls_and_get_their_own_hits(max_batch, sizes):
    searcher, queries = FakeSearcher(DOCUMENTS), [f"问题{number}" for number in range(5)]
    answers = answers_of(searcher, lambda: [search_for(query) for query in queries], max_batch=max_batch)
    assert [as_json(hits) for hits in answers] == [hits_of(query, 3) for query in queries]
    assert [call["n"] for call in searcher.calls] == sizes


def test_searches_with_other_options_share_no_call():
    searcher = FakeSearcher(DOCUMENTS)
    one, other = parse_filter({"year": 2020}), parse_filter({"year": 2021})
    options = [
        {},
        {"where": one},
        {"where": other},
        {"where": parse_filter({"year": 2020})},
        {"hybrid": True},
    ]
    answers_of(searcher, lambda: [search_for("x", **each) for each in options] + [search_for("x", 4)])
    calls = [(call["n"], call["k"], call["where"], call["hybrid"]) for call in searcher.calls]
    assert calls == [(1, 3, None, False), (2, 3, one, False), (1, 3, other, False), (1, 3, None, True),
                     (1, 4, None, False)]  # fmt: skip


def test_an_invalid_vector_fails_only_its_own_request(index):
    class Raising(FakeSearcher):
        opened = Index.open(index)

        def search_vectors(self, vectors, texts=None, k=10, **options):
            self.opened.checked(vectors)
            return super().search_vectors(vectors, texts, k, **options)

    vectors = [np.full(DIM, value, dtype=np.float32) for value in (1, 1e20, 2)]
    results = answers_of(Raising(DOCUMENTS), lambda: [search_for("x", vector=vector) for vector in vectors])
    assert [isinstance(result, IndexingError) for result in results] == [False, True, False]
    assert len(results[0]) == len(results[2]) == 3


def test_a_searcher_that_returns_too_few_results_fails_and_the_next_search_is_answered():
    class Short(FakeSearcher):
        def search_vectors(self, vectors, texts=None, k=10, **options):
            hits = super().search_vectors(vectors, texts, k, **options)
            return hits[: -1 if "短" in texts else None]

    async def run():
        stage, answers = SearchStage(Short(DOCUMENTS), max_batch=8, metrics=Metrics()), []
        try:
            for text in ("短", "好"):
                search = search_for(text)
                stage.put(search)
                async with asyncio.timeout(5):
                    answers += await asyncio.gather(search.answer, return_exceptions=True)
        finally:
            stage.close()
        return answers

    error, hits = asyncio.run(run())
    assert isinstance(error, ValueError)
    assert as_json(hits) == hits_of("好", 3)


def test_late_and_cancelled_searches_are_not_run():
    searcher = FakeSearcher(DOCUMENTS)

    def make():
        late, gone, good = search_for("late", seconds=-1), search_for("gone"), search_for("good")
        gone.answer.cancel()
        return [late, gone, good]

    late, gone, good = answers_of(searcher, make)
    assert isinstance(late, DeadlinePassed)
    assert isinstance(gone, asyncio.CancelledError)
    assert as_json(good) == hits_of("good", 3)
    assert [call["texts"] for call in searcher.calls] == [["good"]]


def test_a_call_may_take_as_long_as_its_most_patient_caller_waits():
    searcher = FakeSearcher(DOCUMENTS)
    before = time.monotonic()
    answers_of(searcher, lambda: [search_for("a", seconds=9), search_for("b", seconds=90)])
    assert searcher.calls[0]["deadline"] > before + 89


def test_answers_for_a_closed_event_loop_disturb_no_others():
    searcher = FakeSearcher(DOCUMENTS)
    stage = SearchStage(searcher, max_batch=8, metrics=Metrics())

    async def ask(text):
        return search_for(text)

    async def ask_and_wait(left):
        search = search_for("here")
        with stage.filling:
            stage.put(left)
            stage.put(search)
        return await asyncio.wait_for(search.answer, 20)

    left = asyncio.run(ask("left"))
    assert as_json(asyncio.run(ask_and_wait(left))) == hits_of("here", 3)
    stage.close()


def test_closing_finishes_waiting_searches():
    async def run():
        stage = SearchStage(FakeSearcher(DOCUMENTS), max_batch=1, metrics=Metrics())
        searches = [search_for(f"{number}", 3 if number % 2 else 200) for number in range(6)]
        with stage.filling:
            for search in searches:
                stage.put(search)
            closing = asyncio.create_task(asyncio.to_thread(stage.close))
            await asyncio.sleep(0)
        await closing
        return await asyncio.wait_for(asyncio.gather(*(search.answer for search in searches)), 20)

    assert len(asyncio.run(run())) == 6


@pytest.mark.parametrize(
    ("options", "large"),
    [
        ({"k": 100}, False),
        ({"k": 101}, True),
        ({"rerank": 1}, True),
        ({"where": {f"f{number}": 1 for number in range(8)}}, False),
        ({"where": {f"f{number}": 1 for number in range(9)}}, True),
        ({"where": {"year": list(range(100))}}, False),
        ({"where": {"year": list(range(60)), "month": list(range(41))}}, True),
        ({"where": {"year": {"gte": 2000, "lt": 2020}}}, False),
        ({"text": "x" * 257}, False),
        ({"text": "x" * 256, "hybrid": True}, False),
        ({"text": "x" * 257, "hybrid": True}, True),
        ({"text": None, "vector": vector_of("x"), "hybrid": True}, False),
    ],
)
def test_searches_that_take_long_have_their_own_thread(options, large):
    async def run():
        given = {"text": "x", **options, "where": parse_filter(options.get("where"))}
        return search_for(given.pop("text"), **given)

    stage = SearchStage(FakeSearcher(DOCUMENTS), max_batch=8, metrics=Metrics())
    assert stage.lane(asyncio.run(run())) is (stage.large if large else stage.small)
    stage.close()


def test_the_wrapper_of_a_future_gets_its_result_and_never_cancels_it():
    async def run():
        good, bad, kept = Future(), Future(), Future()
        wrapped = [on_loop(future) for future in (good, bad, kept)]
        wrapped[2].cancel()
        good.set_result(7)
        bad.set_exception(KeyError("x"))
        answers = await asyncio.gather(*wrapped, return_exceptions=True)
        assert not kept.cancelled()
        kept.set_result(8)  # nobody waits any more
        await asyncio.sleep(0)
        return answers

    seven, error, cancelled = asyncio.run(run())
    assert seven == 7
    assert isinstance(error, KeyError)
    assert isinstance(cancelled, asyncio.CancelledError)


def test_a_moving_mean_starts_with_its_first_value_and_follows_a_change():
    assert moving(0.0, 3.0) == 3.0
    mean = 3.0
    for _ in range(30):
        before, mean = mean, moving(mean, 1.0)
        assert 1.0 < mean < before
    assert mean == pytest.approx(1.0, abs=0.01)
