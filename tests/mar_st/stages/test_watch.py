"""Steps whose loss or gradient is not finite: the run stops, and the file says which batch it was."""

from __future__ import annotations

import json
import math

import pytest
import torch

from mar_st.stages.batches import BatchRecord
from mar_st.stages.watch import NonFiniteError, NonFiniteWatch

RECORD = BatchRecord(["qa", "qa"], {"query": ["头疼", "发热"], "positive": ["休息", "喝水"]})
INPUTS = {
    "query_input_ids": torch.tensor([[2, 7, 3], [2, 3, 0]]),
    "query_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "positive_input_ids": torch.tensor([[5], [6]]),
    "label": torch.tensor([[1.0, 2.0], [float("inf"), 0.0]]),
    "return_loss": True,
}


@pytest.fixture
def watch(tmp_path):
    return NonFiniteWatch(tmp_path / "run" / "bad_batch.json", "joint", tmp_path / "run" / "checkpoints")


@pytest.mark.parametrize(
    ("loss", "norm", "what"),
    [
        (math.nan, 1.0, "the loss is nan"),
        (-math.inf, None, "the loss is -inf"),
        (0.5, torch.tensor(math.inf), "the gradient norm is inf"),
        (0.5, math.nan, "the gradient norm is nan"),
        (math.nan, math.nan, "the loss is nan"),
    ],
)
def test_a_step_that_is_not_finite_stops_the_run(watch, loss, norm, what):
    message = rf"Stage joint stopped at step 7: {what}\. .*bad_batch\.json.* stays in .*checkpoints\."
    with pytest.raises(NonFiniteError, match=message):
        watch.add(7, torch.tensor(loss), norm, RECORD, INPUTS)
    content = json.loads(watch.file.read_text(encoding="utf-8"))
    assert (content["step"], content["loss"], content["grad_norm"]) == (
        7, str(loss), str(None if norm is None else float(norm))
    )  # fmt: skip


def test_the_file_holds_texts_tokens_without_padding_and_bad_labels(watch):
    with pytest.raises(NonFiniteError):
        watch.add(1, torch.tensor(math.nan), None, RECORD, INPUTS)
    content = json.loads(watch.file.read_text(encoding="utf-8"))
    assert content["sources"] == ["qa", "qa"]
    assert content["texts"] == RECORD.texts
    assert content["tokens"] == {"query": [[2, 7, 3], [2, 3]], "positive": [[5], [6]]}
    assert content["rows_with_bad_labels"] == [1]


def test_a_batch_without_a_record_is_written_by_its_tokens(watch):
    with pytest.raises(NonFiniteError):
        watch.add(1, torch.tensor(math.nan), None, None, {"text_input_ids": torch.tensor([[4, 5]])})
    content = json.loads(watch.file.read_text(encoding="utf-8"))
    assert content.keys() == {"step", "loss", "grad_norm", "tokens"}
    assert content["tokens"] == {"text": [[4, 5]]}


def test_finite_steps_leave_no_file(watch):
    for step in range(5):
        watch.add(step, torch.tensor(1e30), torch.tensor(0.0), RECORD, INPUTS)
    watch.add(5, torch.tensor(0.0), None, None, {})
    watch.settle()
    assert not watch.file.parent.exists()


class Event:
    """A CUDA event that is ready when the test says so."""

    def __init__(self):
        self.ready = False

    def record(self):
        pass

    def query(self):
        return self.ready

    def synchronize(self):
        self.ready = True


@pytest.fixture
def cuda(monkeypatch):
    """Makes losses that claim to be on CUDA; the verdicts arrive late. Returns the events so far."""
    events = []
    monkeypatch.setattr(torch.cuda, "Event", lambda: events.append(Event()) or events[-1])
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory, **options: empty(*size, **options))

    class Loss(torch.Tensor):
        device = torch.device("cuda")

    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *_: tensor)
    return events, lambda value: torch.tensor(value).as_subclass(Loss)


def test_a_verdict_of_cuda_may_come_two_steps_late_and_no_later(watch, cuda):
    events, loss = cuda
    watch.add(1, loss(math.nan), torch.tensor(1.0), RECORD, INPUTS)
    watch.add(2, loss(1.0), torch.tensor(1.0), RECORD, INPUTS)
    assert not any(event.ready for event in events)
    with pytest.raises(NonFiniteError, match="stopped at step 1: the loss is nan"):
        watch.add(3, loss(1.0), torch.tensor(1.0), RECORD, INPUTS)


def test_no_verdict_is_open_once_the_watch_is_settled(watch, cuda):
    events, loss = cuda
    watch.add(1, loss(1.0), torch.tensor(1.0), RECORD, INPUTS)
    watch.settle()
    assert [event.ready for event in events] == [True]
    watch.add(2, loss(1.0), torch.tensor(math.inf), RECORD, INPUTS)
    with pytest.raises(NonFiniteError, match="stopped at step 2: the gradient norm is inf"):
        watch.settle()
