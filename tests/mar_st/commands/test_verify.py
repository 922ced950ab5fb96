"""Tests of `mar verify`: its lines, its JSON, its exit status, and options that do not go together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.index import build_index


@pytest.fixture
def vectors(tmp_path):
    values = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    write_vectors(tmp_path / "vectors", [f"d{row}" for row in range(50)], values, shard=20)
    return tmp_path / "vectors"


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def test_a_whole_folder_is_one_line(run_mar, vectors):
    files = list((vectors / "shards").iterdir())
    code, out, err = run_mar("verify", vectors)
    assert (code, err) == (0, "")
    assert out == f"{vectors}: vectors, {len(files)} files, 0.0 MB, whole\n"


def test_each_damaged_file_has_a_line_with_what_to_do(run_mar, vectors):
    cut(vectors / "shards" / "000001.safetensors")
    (vectors / "shards" / "000002.arrow").unlink()
    code, out, _ = run_mar("verify", vectors)
    assert code == 1
    lines = out.splitlines()
    assert lines[0].endswith(", 2 damaged or missing")
    assert [line.partition(": ")[0].strip() for line in lines[1::2]] == [
        str(vectors / "shards" / name) for name in ("000001.safetensors", "000002.arrow")
    ]
    assert all("mar encode" in line for line in lines[2::2])


def test_one_folder_is_an_object_and_several_are_a_list(run_mar, vectors, tmp_path):
    build_index(vectors, tmp_path / "index", kind="exact", progress=False)
    code, out, _ = run_mar("verify", vectors, "--json")
    assert (code, json.loads(out)["kind"], json.loads(out)["whole"]) == (0, "vectors", True)
    cut(vectors / "shards" / "000000.arrow")
    code, out, _ = run_mar("verify", tmp_path / "index", vectors, "--json")
    shown = json.loads(out)
    assert code == 1
    assert [(one["kind"], one["whole"]) for one in shown] == [("index", True), ("vectors", False)]
    assert len(shown[1]["problems"]) == 1


def test_a_damaged_index_is_repaired_from_its_vectors(run_mar, vectors, tmp_path):
    build_index(vectors, tmp_path / "index", kind="exact", progress=False)
    path = tmp_path / "index" / "segments" / "000001" / "vectors.npy"
    before = path.read_bytes()
    cut(path)
    assert run_mar("verify", tmp_path / "index")[0] == 1
    code, out, err = run_mar("verify", tmp_path / "index", "--repair", "--source", vectors)
    assert code == 0, err
    assert out.splitlines()[0].endswith(", whole")
    assert path.read_bytes() == before
    assert run_mar("verify", tmp_path / "index")[0] == 0


@pytest.mark.parametrize("arguments", [["--source", "x"], ["more", "--repair", "--source", "x"]])
def test_a_source_is_for_the_repair_of_one_folder(run_mar, vectors, arguments):
    code, out, err = run_mar("verify", vectors, *arguments)
    assert (code, out) == (2, "")
    assert "--source requires --repair and exactly one folder" in " ".join(err.split())


def test_a_folder_of_something_else_is_one_error(run_mar, tmp_path):
    code, out, err = run_mar("verify", tmp_path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
