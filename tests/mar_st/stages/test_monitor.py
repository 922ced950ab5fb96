from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import pytest

from mar_st.stages import monitor
from mar_st.stages.monitor import MetricsFile, TensorBoard, evaluation_results, plot_run

# -- metrics.jsonl --


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_resumed_run_keeps_the_records_up_to_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    written = [{"step": 20, "loss": 2.0}, {"step": 40, "loss": 1.0}, {"step": 40, "train_runtime": 3.0}]
    # The process was killed in the middle of a line.
    path.write_text("".join(json.dumps(row) + "\n" for row in written) + '{"step": 60, "lo', encoding="utf-8")
    metrics = MetricsFile(path)

    def start(step):
        metrics.on_train_begin(None, SimpleNamespace(global_step=step, is_world_process_zero=True), None)
        return [row["step"] for row in rows(path)]

    assert start(40) == [20, 40]
    assert start(30) == [20]
    state = SimpleNamespace(global_step=50, is_world_process_zero=True)
    metrics.on_log(None, state, None, logs={"loss": 0.5, "mfu": None})
    assert rows(path)[-1] == {"step": 50, "loss": 0.5, "mfu": None}
    state.is_world_process_zero = False
    metrics.on_log(None, state, None, logs={"loss": 9.0})
    assert rows(path)[-1]["loss"] == 0.5
    assert start(0) == []


def test_evaluation_results_are_read_from_the_records():
    results = evaluation_results(
        [
            {"step": 5, "loss": 1.0},
            {"step": 5, "eval_ndcg@10": 0.5, "eval_runtime": 2.0, "eval_note": "text"},
        ]
    )
    assert results == [(5, {"ndcg@10": 0.5})]


# -- loss.png --


def write(folder, *records):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_without_matplotlib_there_is_one_line_and_no_plot(tmp_path, monkeypatch):
    warned = []
    monkeypatch.setattr(monitor.logger, "warning_once", warned.append)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write(tmp_path, {"step": 1, "loss": 1.0})
    assert plot_run(tmp_path) is None
    assert len(warned) == 1
    assert "matplotlib" in warned[0]
    assert not (tmp_path / "loss.png").exists()


def test_the_plot_shows_loss_parts_and_scores(tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure", reason="plots need the report extra")
    curves = {}
    save = figures.Figure.savefig

    def look(figure, *where, **options):
        for axes in figure.axes:
            curves.update({line.get_label(): [*map(tuple, line.get_data())] for line in axes.get_lines()})
        save(figure, *where, **options)

    monkeypatch.setattr(figures.Figure, "savefig", look)
    write(
        tmp_path,
        {"step": 0, "eval_ndcg@10": 0.1, "eval_runtime": 3.0},
        {"step": 20, "loss": 2.0, "loss_mse": 0.5},
        {"step": 40, "loss": 1.0, "loss_mse": 0.25},
        {"step": 40, "eval_ndcg@10": 0.3},
    )
    assert plot_run(tmp_path) == tmp_path / "loss.png"
    assert curves == {
        "loss": [(20, 40), (2.0, 1.0)],
        "loss_mse": [(20, 40), (0.5, 0.25)],
        "ndcg@10": [(0, 40), (0.1, 0.3)],
    }


def test_the_plot_is_an_image(tmp_path):
    pytest.importorskip("matplotlib", reason="plots need the report extra")
    write(tmp_path, {"step": 1, "loss": 1.0}, {"step": 2, "loss": float("nan")}, {"step": 2, "eval_map": 0.5})
    plot = plot_run(tmp_path)
    assert plot.read_bytes()[1:4] == b"PNG"


def test_without_records_there_is_no_plot(tmp_path):
    assert plot_run(tmp_path) is None


def test_a_folder_that_tensorboard_cannot_open_does_not_end_the_training(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path / os.fsdecode(b"run-\xff"))  # as non-ASCII names in a C locale
    state = SimpleNamespace(is_world_process_zero=True, global_step=0)
    board.on_train_begin(None, state, None)
    board.on_log(None, state, None, logs={"loss": 1.0})
    board.on_train_end(None, state, None)
