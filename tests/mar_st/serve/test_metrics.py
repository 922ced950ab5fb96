"""Metrics in Prometheus' text format, as a scraper reads them."""

from __future__ import annotations

import pytest

from mar_st.serve.errors import bad
from mar_st.serve.metrics import Metrics
from tests.mar_st.serve.conftest import metric_values


def test_requests_are_counted_by_route_and_status():
    metrics = Metrics()
    for route, status in (("/search", 200), ("/search", 200), ("/search", 400), ("other", 200)):
        metrics.answered(route, status, 0.5)
    assert metric_values(metrics, "mar_requests_total") == {
        ("/search", "200"): 2,
        ("/search", "400"): 1,
        ("other", "200"): 1,
    }


def test_only_answers_count_as_latency():
    metrics = Metrics()
    metrics.answered("/search", 200, 0.25)
    metrics.answered("/search", 504, 10.0)
    metrics.refused("/search", bad("no"))
    assert metric_values(metrics, "mar_stage_seconds_count")["total",] == 1
    assert metric_values(metrics, "mar_stage_seconds_sum")["total",] == 0.25


def test_a_refusal_counts_as_an_error_and_as_a_request():
    metrics = Metrics()
    metrics.refused("/search", bad("no", code="token_ids"))
    assert metric_values(metrics, "mar_errors_total") == {("token_ids",): 1}
    assert metric_values(metrics, "mar_requests_total") == {("/search", "400"): 1}


def test_one_query_encoder_answers_at_a_time():
    metrics = Metrics()
    for model, query in (("mar", "query"), ("mar", "query-lookup"), ("mar", "query"), ("mar", "query")):
        metrics.answers(model, query)
        values = metric_values(metrics, "mar_query_encoder")
        assert [labels for labels, value in values.items() if value] == [(model, query)]
    metrics.answers("other", None)
    assert [labels for labels, value in metric_values(metrics, "mar_query_encoder").items() if value] == [
        ("other", "")
    ]


@pytest.mark.parametrize("name", ["模型", "BAAI/bge-m3", 'a "name"', "a\nline\\", "😀", "a{b=}"])
def test_any_name_of_a_model_can_be_read_back(name):
    metrics = Metrics()
    metrics.answers(name, "query")
    assert metric_values(metrics, "mar_query_encoder") == {(name, "query"): 1}


def test_the_measurements_of_a_batcher_are_recorded_by_stage():
    metrics = Metrics()
    waiting = [7]
    tell = metrics.observer(lambda: waiting[0])
    tell("queue_seconds", 0.5)
    tell("batch_size", 16)
    tell("encode_seconds", 2.0)
    waiting[0] = 3  # counted with the next batch
    tell("of a later version", 9.0)
    sums = metric_values(metrics, "mar_stage_seconds_sum")
    assert (sums["queue",], sums["encode",], sums["search",]) == (0.5, 2.0, 0.0)
    assert metric_values(metrics, "mar_batch_size_sum") == {("encode",): 16, ("search",): 0}
    assert metric_values(metrics, "mar_queue_length") == {("encode",): 7}


def test_two_servers_of_a_process_count_apart():
    one, other = Metrics(), Metrics()
    one.answered("/search", 200, 0.1)
    assert metric_values(other, "mar_requests_total") == {}
    assert metric_values(one, "process_open_fds")[()] > 0
