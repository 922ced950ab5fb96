from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import yaml
from filelock import FileLock
from sentence_transformers import SentenceTransformer

from mar_st.errors import MarError
from mar_st.evaluation import tasks
from mar_st.evaluation.statistics import Scores
from mar_st.evaluation.tasks import load_task, score
from mar_st.runs import train as runner
from mar_st.study import StudyError, load_study
from mar_st.study import grid as study_run
from mar_st.study.grid import plan_study, run_study

TABLE = ("table.json", "table.md")


def _bytes(folder):
    return {name: (folder / name).read_bytes() for name in TABLE}


@pytest.mark.slow
def test_shared_stages_are_trained_once(run, trained, study_folder):
    run()
    # Two seeds: document-init, align once each; a joint stage for each of the two rows that have one.
    assert sorted(trained) == sorted(["document-init", "align", "joint", "joint"] * 2)
    assert len([path for path in (study_folder / "out/stages").iterdir() if path.is_dir()]) == 8


def test_the_table_has_every_row_with_its_scores(finished_study):
    folder, lines = finished_study
    out = folder / "out"
    assert any("[6/6] warmer, seed 2" in line for line in lines)
    table = json.loads((out / "table.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in table["rows"]] == ["full", "no-joint", "warmer"]
    full, no_joint, _ = table["rows"]
    assert full["of_full"] == 1
    assert "p" not in full["scores"]["average"]
    for row in table["rows"]:
        for name in ("faq", "pairs", "average"):
            score = row["scores"][name]
            assert score["low"] <= score["mean"] <= score["high"]
            assert score["mean"] == pytest.approx(np.mean(score["seeds"]))
            assert score["std"] == pytest.approx(np.std(score["seeds"], ddof=1))
        assert row["scores"]["average"]["mean"] == pytest.approx(
            (row["scores"]["faq"]["mean"] + row["scores"]["pairs"]["mean"]) / 2
        )
        assert row["cost"]["parameters"] > row["cost"]["parameters_without_embeddings"] > 0
        assert row["cost"]["flops_per_query"] > 0
    # The table has the values of the score files.
    values = []
    for seed in (1, 2):
        kept = json.loads((out / f"scores/no-joint/{seed}/faq.json").read_text(encoding="utf-8"))
        assert kept["score"] == pytest.approx(np.mean(kept["values"]))
        assert len(kept["values"]) == len(kept["items"]) == 24
        values.append(kept["values"])
    assert no_joint["scores"]["faq"]["seeds"] == pytest.approx(Scores(np.array(values)).per_seed().tolist())
    average = no_joint["scores"]["average"]
    assert 0 < average["p"] <= 1
    assert 0 < average["p_mixed"] <= average["p_holm"] <= 1
    assert average["difference_low"] <= average["difference"] <= average["difference_high"]
    (paper,) = table["published"]
    here = {name: entry["here"] for name, entry in paper["rows"].items()}
    opposite = here["full"] > here["no-joint"]  # the made-up paper has it the other way round
    assert paper["kendall_tau"] == (-1.0 if opposite else 1.0)
    assert len(paper["opposite_pairs"]) == int(opposite)
    text = (out / "table.md").read_text(encoding="utf-8")
    assert "**all stages**" in text
    assert "Kendall's tau" in text
    assert "ms" not in text
    assert (out / "timings.json").is_file()
    assert "ms / query" in (out / "timings.md").read_text(encoding="utf-8")
    assert (out / "runs/full/1/03-joint").resolve().parent == (out / "stages").resolve()


def test_a_second_run_does_nothing(run, trained, done):
    before, timings = _bytes(done), (done / "timings.json").read_bytes()
    shutil.rmtree(done / "stages")  # scores are enough
    _, lines = run()
    assert trained == []
    assert len([line for line in lines if line.endswith("finished before, kept")]) == 6
    assert _bytes(done) == before
    assert (done / "timings.json").read_bytes() == timings


@pytest.mark.thorough
@pytest.mark.parametrize("missing", ["costs", "timings"])
def test_a_missing_cost_or_timing_is_measured_again(run, trained, done, missing):
    before = _bytes(done)
    (done / missing / "full.json").unlink()
    run()
    assert trained == []
    assert (done / missing / "full.json").is_file()
    assert _bytes(done) == before


@pytest.mark.thorough
@pytest.mark.parametrize("damage", [b"", b'{"model": "0', bytes(64), b"[1]"])
def test_damaged_scores_costs_and_vectors_are_measured_again(run, trained, done, damage):
    before = _bytes(done)
    files = [done / name for name in ("scores/full/1/faq.json", "costs/full.json", "timings/full.json")]
    for path in [*files, *done.glob("vectors/*/*.npy"), *done.glob("stages/*/done.json")]:
        path.write_bytes(damage)
    run()
    assert _bytes(done) == before
    assert all(json.loads(path.read_text(encoding="utf-8")) for path in files)


class _Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in the second joint stage", "while scores are measured"])
def test_a_killed_study_gives_the_same_table(run, trained, finished_study, study_folder, monkeypatch, where):
    with monkeypatch.context() as patch:
        if where == "in the second joint stage":
            from mar_st.stages.monitor import MetricsFile

            def on_step_end(self, args, state, control, **kwargs):
                if trained.count("joint") == 2 and state.global_step == 4:
                    raise _Killed

            patch.setattr(MetricsFile, "on_step_end", on_step_end)
        else:
            original = study_run.score

            def score(model, data, **options):
                if len(list((study_folder / "out/scores").rglob("*.json"))) == 3:
                    raise _Killed
                return original(model, data, **options)

            patch.setattr(study_run, "score", score)
        with pytest.raises(_Killed):
            run(save_steps=2)
    assert not (study_folder / "out/table.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in (study_folder / "out/scores").rglob("*.json")}
    assert trained
    run()
    # Nothing that was finished is trained again.
    assert len(trained) == 8 + (where == "in the second joint stage")
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert _bytes(study_folder / "out") == _bytes(finished_study[0] / "out")


@pytest.mark.thorough
def test_a_changed_row_trains_its_own_stages(run, trained, change, done):
    before = {path: path.stat().st_mtime_ns for path in (done / "scores/full").rglob("*.json")}
    assert before
    change(
        rows=[
            {"name": "full"},
            {"name": "no-joint", "changes": {"stages": {"joint": None}}},
            {"name": "warmer", "set": {"stages.joint.temperature": 0.3}},
        ]
    )
    run()
    assert trained == ["joint", "joint"]
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.thorough
def test_a_changed_task_is_scored_again(run, trained, done, study_folder):
    before = json.loads((done / "table.json").read_text(encoding="utf-8"))
    qrels = study_folder / "faq/qrels/test.tsv"
    qrels.write_text(qrels.read_text(encoding="utf-8").replace("q0\td0", "q0\td5"), encoding="utf-8")
    run()
    after = json.loads((done / "table.json").read_text(encoding="utf-8"))
    assert trained == []
    assert before["rows"][0]["scores"]["faq"] != after["rows"][0]["scores"]["faq"]
    assert before["rows"][0]["scores"]["pairs"] == after["rows"][0]["scores"]["pairs"]


@pytest.mark.slow
def test_a_row_that_fails_keeps_the_others(run, change, monkeypatch, study_folder):
    change(seeds=[1])
    original = runner.train_stage

    def dispatch(model, sources, stage, *args, **parts):
        if stage.stage == "joint" and stage.temperature == 0.5:
            raise MarError("the loss is not a number")
        original(model, sources, stage, *args, **parts)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "train_stage", dispatch)
        with pytest.raises(
            StudyError, match=r"1 of 3 runs failed: warmer \(seed 1\): the loss is not a number"
        ):
            run()
    assert len(list((study_folder / "out/scores").rglob("*.json"))) == 4
    table, lines = run()
    assert table.is_file()
    assert (
        len([line for line in lines if line.endswith("finished before, kept") and "stage" not in line]) == 2
    )


@pytest.mark.slow
def test_a_run_locked_by_another_process_is_skipped(run, trained, change, study_folder):
    change(seeds=[1])
    folder = study_folder / "out/runs/no-joint"
    folder.mkdir(parents=True)
    with FileLock(folder / "1.lock"):
        table, lines = run()
    assert table is None
    assert "[2/3] no-joint, seed 1: another process is running it" in lines
    assert not (study_folder / "out/scores/no-joint/1").exists()
    assert run()[0].is_file()
    assert len(trained) == 4


@pytest.mark.slow
def test_the_last_process_writes_the_table(trained, change, study_folder):
    study, out = load_study(change(seeds=[1])), study_folder / "out"
    folder = out / "runs/no-joint"
    folder.mkdir(parents=True)
    lock = FileLock(folder / "1.lock")
    lock.acquire()

    def say(line):
        if line.startswith("[3/3]"):  # the other process ends while this one is at its last row
            lock.release()

    assert run_study(study, out, say=say) == out / "table.json"


def test_the_plan_says_what_is_trained(finished_study, study_folder, tmp_path):
    study = load_study(study_folder / "study.yaml")
    planned = plan_study(study, tmp_path / "plan", stages=tmp_path / "store")
    states = [stage.state for stage in planned]
    assert (len(states), states.count("train"), states.count("shared")) == (16, 8, 8)
    store = finished_study[0] / "out/stages"
    assert {path.name for path in store.iterdir() if path.is_dir()} == {stage.digest for stage in planned}
    again = plan_study(study, tmp_path / "plan", stages=store)
    assert {stage.state for stage in again} == {"shared", "finished"}


@pytest.mark.thorough
def test_studies_may_share_a_store(run, trained, change, done, study_folder):
    content = yaml.safe_load((study_folder / "study.yaml").read_text(encoding="utf-8"))
    change(rows=content["rows"][:2], seeds=[2])
    run("second", stages=done / "stages")
    assert trained == []


@pytest.mark.thorough
def test_the_plot_is_the_same_bytes_for_the_same_table(finished_study, tmp_path):
    pytest.importorskip("matplotlib", reason="the plot needs the report extra")
    from mar_st.study.plot import plot

    table = json.loads((finished_study[0] / "out/table.json").read_text(encoding="utf-8"))
    for name in ("first.png", "second.png"):
        plot(table, tmp_path / name)
    first = (tmp_path / "first.png").read_bytes()
    assert (tmp_path / "second.png").read_bytes() == first
    assert first.startswith(b"\x89PNG")


@pytest.mark.thorough
def test_without_matplotlib_a_line_says_that_there_is_no_plot(run, done, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _, lines = run()
    assert any("table.png is left out" in line and "medteb[report]" in line for line in lines)
    assert (done / "table.md").is_file()


# -- rows that share a document encoder, and rows without training --


def _seeded(study_folder):
    """Give the document encoder's stage a seed of its own."""
    path = study_folder / "base.yaml"
    base = yaml.safe_load(path.read_text(encoding="utf-8"))
    base["stages"][0]["seed"] = 7
    path.write_text(yaml.safe_dump(base, allow_unicode=True), encoding="utf-8")


def test_a_stage_with_its_own_seed_is_shared_by_all_seeds(study_folder, change):
    _seeded(study_folder)
    planned = plan_study(load_study(change()), study_folder / "plan")
    digests = {(stage.name, stage.seed): stage.digest for stage in planned if stage.row == "full"}
    assert digests["document-init", 1] == digests["document-init", 2]
    assert digests["align", 1] != digests["align", 2]
    assert [stage.state for stage in planned if stage.name == "document-init"] == ["train"] + ["shared"] * 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "times"),
    [
        pytest.param(24, 2, id="cut"),  # the symmetric row has the documents' whole width
        pytest.param(16, 1, id="whole"),
    ],
)
def test_documents_are_encoded_once_for_rows_with_one_document_encoder(
    study_folder, change, monkeypatch, width, times
):
    _seeded(study_folder)
    base = yaml.safe_load((study_folder / "base.yaml").read_text(encoding="utf-8"))
    base["document"]["config"]["hidden_size"] = width
    (study_folder / "base.yaml").write_text(yaml.safe_dump(base, allow_unicode=True), encoding="utf-8")
    rows = [
        {"name": "full", "changes": {"stages": {"joint": None}}},
        {"name": "short", "changes": {"stages": {"joint": None, "align": {"epochs": 1}}}},
        {"name": "large", "changes": {"query": None, "stages": {"joint": None, "align": None}}, "seeds": 1},
    ]
    change(rows=rows, published=[])
    asked, original = [], tasks.encode_texts

    def encode(model, texts, task, kind, role, **options):
        asked.append((role, len(texts)))
        return original(model, texts, task, kind, role, **options)

    monkeypatch.setattr(tasks, "encode_texts", encode)
    study = load_study(study_folder / "study.yaml")
    run_study(study, study_folder / "out", say=lambda line: None)
    assert asked.count(("document", 24)) == times
    kept = (study_folder / "out/scores/short/2/faq.json").read_text(encoding="utf-8")
    model = SentenceTransformer(str(study_folder / "out/runs/short/2/model"))
    monkeypatch.setattr(tasks, "encode_texts", original)
    assert json.loads(kept)["values"] == score(model, load_task(study.tasks[0]))
    table = json.loads((study_folder / "out/table.json").read_text(encoding="utf-8"))
    assert [len(row["models"]) for row in table["rows"]] == [2, 2, 1]
