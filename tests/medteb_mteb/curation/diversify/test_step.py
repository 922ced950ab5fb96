from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from medteb_mteb.commands.diversify import diversify as command
from medteb_mteb.commands.errors import UserError
from medteb_mteb.curation.diversify import (
    Diversify,
    PrecomputedVectors,
    Search,
    SelectionRule,
    centres_sample,
    diversify,
)
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.files.step import run_step


@pytest.fixture
def app():
    cli = typer.Typer()
    cli.command()(command)
    return cli


def call(app, *arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def rows(folder, kind):
    return [
        json.loads(line) for file in sorted(folder.glob(f"{kind}-*")) for line in file.open(encoding="utf-8")
    ]


@pytest.mark.parametrize("shard", [7, 30, 1000])
def test_the_step_keeps_what_the_function_keeps(source, vectors, tmp_path, shard):
    kept = diversify(np.load(vectors), threshold=0.8, seed_size=10)
    assert 0 < (~kept).sum() < 80
    given = PrecomputedVectors(vectors, [f"t{i}" for i in range(90)])
    step = Diversify(given, SelectionRule(0.8, seed_size=10), Search())
    report = run_step(step, source, tmp_path / "out", shard=shard, show_progress=False)
    assert report.dropped == {"near-duplicate": (~kept).sum()}
    assert [text.id for text in read_texts(tmp_path / "out")] == [f"t{i}" for i in np.flatnonzero(kept)]
    units = np.load(vectors)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    for row in rows(tmp_path / "out", "dropped"):
        name, similarity = row["detail"].split()
        number = int(row["_id"][1:])
        earlier = [i for i in np.flatnonzero(kept) if i < number]
        nearest = max(earlier, key=lambda i, number=number: units[i] @ units[number])
        assert name == f"t{nearest}"
        assert float(similarity) == pytest.approx(units[nearest] @ units[number], abs=6e-5)


def run(kind, source, vectors, out, index):
    """The step `kind` in shards of 20, approximate with few lists so that it depends on its centres."""
    search, sample = centres_sample(source, Search(index, lists=8, probes=1, block=16))
    given = PrecomputedVectors(vectors, [text.id for text in read_texts(source)])
    step = kind(
        given, SelectionRule(0.8, seed_size=10), search, sample=sample, centres_file=f"{out}.centres.npy"
    )
    return run_step(step, source, out, shard=20, show_progress=False)


CHILD = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("tests_of_the_step", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
class Killed(module.Diversify):
    calls = 0
    def __call__(self, texts):
        Killed.calls += 1
        if Killed.calls == 3:
            os._exit(9)  # as by a kill: nothing is cleaned up
        return super().__call__(texts)
module.run(Killed, *sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("index", ["ivf", "exact"])
def test_resumed_equals_uninterrupted(source, vectors, tmp_path, index):
    run(Diversify, source, vectors, tmp_path / "whole", index)
    arguments = [sys.executable, "-c", CHILD, __file__, source, vectors, tmp_path / "out", index]
    assert subprocess.run([str(a) for a in arguments], check=False).returncode == 9
    assert len(list((tmp_path / "out").glob("shard-*"))) == 2
    assert run(Diversify, source, vectors, tmp_path / "out", index).resumed == 40
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.thorough
def test_texts_are_encoded_once(app, source, tmp_path, monkeypatch):
    from mar_st.teachers import ModelTeacher

    encoded, real = [], ModelTeacher.encode
    monkeypatch.setattr(
        ModelTeacher, "encode", lambda self, texts, role: encoded.extend(texts) or real(self, texts, role)
    )
    options = ("-m", "mar-mini", "--store", tmp_path / "store", "--seed-size", 4, "-q")
    out = call(app, source, tmp_path / "out", "--kind", "queries", *options, "--json")
    report = json.loads(out[out.index("{") :])
    assert report["read"] == 90
    assert 10 < report["kept"] < 60  # 45 texts come twice; one more of each is tolerated
    assert sorted(encoded) == sorted({text.text for text in read_texts(source)})
    settings = json.loads((tmp_path / "out" / "step.json").read_text("utf-8"))["settings"]
    assert (settings["threshold"], settings["tolerated"], settings["index"]) == (0.85, 1, "exact")
    assert settings["vectors"]["role"] == "query"
    again = call(app, source, tmp_path / "two", "--kind", "queries", *options, "--threshold", 0.99)
    assert "of 90 texts kept" in again
    assert len(encoded) == len({text.text for text in read_texts(source)})
    call(app, source, tmp_path / "three", "--kind", "documents", *options)
    settings = json.loads((tmp_path / "three" / "step.json").read_text("utf-8"))["settings"]
    assert (settings["threshold"], settings["vectors"]["role"]) == (0.78, "document")


def test_an_approximate_run_reports_its_measured_error(app, source, vectors, tmp_path):
    options = ("--kind", "queries", "--vectors", vectors, "--seed-size", 10, "-q", "--index", "ivf")
    out = call(app, source, tmp_path / "out", *options, "--lists", 20, "--probes", 1)
    assert "ivf decided otherwise than an exact search in" in out
    assert "of 80 sampled decisions" in out
    measured = json.loads((tmp_path / "out" / "disagreement.json").read_text("utf-8"))
    assert measured["sampled"] == 80
    everywhere = call(app, source, tmp_path / "all", *options, "--lists", 3, "--probes", 3, "--json")
    assert json.loads(everywhere)["disagreement"]["share"] == 0
    exact = call(app, source, tmp_path / "exact", *options[:-2], "--json")
    assert "disagreement" not in json.loads(exact)
    assert rows(tmp_path / "all", "records") == rows(tmp_path / "exact", "records")
    assert not (tmp_path / "all" / ".centres.npy").exists()
    # Finished: nothing is done again, and what was measured is said again.
    assert call(app, source, tmp_path / "out", *options, "--lists", 20, "--probes", 1) == out


def test_vectors_are_found_by_id(source, vectors, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    order = np.random.default_rng(1).permutation(90)
    np.save(folder / "vectors.npy", np.load(vectors)[order])
    ids = "".join(json.dumps({"_id": f"t{i}"}) + "\n" for i in order)
    (folder / "texts.jsonl").write_text(ids, encoding="utf-8")
    texts = list(read_texts(source))
    names = [text.id for text in texts]
    assert np.array_equal(PrecomputedVectors(folder, names).vectors(texts)[:], np.load(vectors))
    assert np.array_equal(PrecomputedVectors(vectors, names).vectors(texts[5:9])[:], np.load(vectors)[5:9])
    with pytest.raises(BuildError, match="no vector for 1 texts, for instance 'new'"):
        PrecomputedVectors(folder, [*names, "new"])
    with pytest.raises(BuildError, match="holds 90 vectors for 89 texts"):
        PrecomputedVectors(vectors, names[1:])
    with pytest.raises(BuildError, match="There is no"):
        PrecomputedVectors(tmp_path / "gone.npy", names)


@pytest.mark.parametrize("row", [47, 57])
def test_an_unusable_vector_is_named_by_the_id_of_its_text(source, vectors, tmp_path, row):
    """In the first and in the second block of its shard."""
    bad = np.load(vectors)
    bad[row, 3] = np.nan
    np.save(vectors, bad)
    for index in ("exact", "ivf"):
        with pytest.raises(BuildError, match=f"text 't{row}' has NaN"):
            run(Diversify, source, vectors, tmp_path / index, index)


def test_the_ids_of_given_vectors_are_part_of_the_steps_identity(source, vectors, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "vectors.npy", np.load(vectors))
    names = [f"t{i}" for i in range(90)]

    def write(order):
        ids = "".join(json.dumps({"_id": name}) + "\n" for name in order)
        (folder / "texts.jsonl").write_text(ids, encoding="utf-8")
        return PrecomputedVectors(folder, names)

    step = Diversify(write(names), SelectionRule(0.8, seed_size=10), Search())
    run_step(step, source, tmp_path / "out", show_progress=False)
    step = Diversify(write(names[::-1]), SelectionRule(0.8, seed_size=10), Search())
    with pytest.raises(BuildError, match="other settings"):
        run_step(step, source, tmp_path / "out", show_progress=False)
    with pytest.raises(BuildError, match="holds 't0' twice"):
        write([*names[:-1], "t0"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-m", "nowhere"), "There is no model folder nowhere"),
        (("-m", "medteb/nothing"), "There is no model medteb/nothing"),
        (("-m", "nobody/nothing"), "cannot be loaded from the Hub"),
        (("--threshold", "1.5"), "must be 0.05 or more and below 1"),
        (("-k", "1"), "Make k larger"),
        (("--column", "text"), "takes FIELD=COLUMN"),
    ],
)
def test_invalid_settings_are_refused(app, source, tmp_path, options, message):
    arguments = [str(source), str(tmp_path / "out"), "--kind", "queries", "-q", *options]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, (BuildError, UserError))
    assert message in str(result.exception)
    assert not (tmp_path / "out" / "manifest.json").exists()
