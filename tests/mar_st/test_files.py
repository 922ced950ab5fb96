"""Files: written completely or not at all, by one process at a time; damaged input is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.files import (
    JsonError,
    YamlError,
    finished,
    finished_folder,
    listed_path,
    load_array,
    locked,
    parse_yaml,
    printable,
    read_json,
    read_record,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a" / "x.json"
    write_json(path, {"n": 1})
    with pytest.raises(RuntimeError), finished(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert read_json(path) == {"n": 1}
    assert os.listdir(path.parent) == ["x.json"]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    folder = tmp_path / "out"
    with finished_folder(folder) as part:
        (part / "a").write_text("1")
    with pytest.raises(RuntimeError), finished_folder(folder) as part:
        (part / "b").write_text("2")
        raise RuntimeError
    assert os.listdir(folder) == ["a"]
    with finished_folder(folder) as part:
        (part / "c").write_text("3")
    assert os.listdir(folder) == ["c"]
    assert os.listdir(tmp_path) == ["out"]


def test_only_the_user_reads_a_private_file(tmp_path):
    write_text(tmp_path / "x", "secret", private=True)
    assert (tmp_path / "x").stat().st_mode & 0o077 == 0


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from mar_st.files import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "run")], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(MarError, match="run"), locked(tmp_path / "run"):
            pass
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with locked(tmp_path / "run"):
        pass


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", ".hidden", "", 3, "a\x00b", "link/x"])
def test_names_stay_below_their_folder(tmp_path, name):
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(MarError, match="listing"):
        listed_path(folder, name, "listing")
    assert listed_path(folder, "a/b.txt", "listing") == folder / "a" / "b.txt"


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '"\\ud800"', ""])
def test_damaged_json(tmp_path, text):
    (tmp_path / "x").write_text(text)
    with pytest.raises(JsonError):
        read_json(tmp_path / "x")
    assert read_record(tmp_path / "x") is None


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x")
    with pytest.raises(MarError, match="pipe"):
        read_json(tmp_path / "x")


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2",
        "x: &a {b: 1}\ny:\n  <<: *a",
        "a: &a [x]\nb: [" + ", ".join(["*a"] * 30) + "]",
        "a: [",
        '"\\ud800"',
        "[" * 5000,
        "!!python/object:os.system {}",
    ],
)
def test_yaml_that_is_refused(text):
    with pytest.raises(YamlError):
        parse_yaml(text)


def test_yaml_of_plain_values():
    assert parse_yaml("a: [1, 2.5, null]\nb: {c: 高血压}") == {"a": [1, 2.5, None], "b": {"c": "高血压"}}


def test_arrays_are_read_and_damaged_ones_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    assert load_array(tmp_path / "a.npy", mapped=True).tolist() == [[0, 1, 2], [3, 4, 5]]
    whole = (tmp_path / "a.npy").read_bytes()
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", a=np.arange(3))
    (tmp_path / "cut.npy").write_bytes(whole[:-8])
    (tmp_path / "text.npy").write_text(json.dumps([1]))
    for name in ("pickle.npy", "b.npz", "cut.npy", "text.npy"):
        with pytest.raises(ValueError, match=name):
            load_array(tmp_path / name)


def test_a_terminal_gets_no_escapes():
    assert printable("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert printable("高血压") == "高血压"
