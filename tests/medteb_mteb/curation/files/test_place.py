from __future__ import annotations

from pathlib import Path

import pytest

from medteb_mteb.curation.files.place import placing, refuse_taken
from medteb_mteb.curation.files.records import BuildError

NAMES = ("MedTEBSTS", "train/sts.jsonl", "train/sts-pairs.jsonl")


def write(part, content="one"):
    for name in ("MedTEBSTS/test.jsonl", "train/sts.jsonl"):
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def files(folder):
    return {
        str(p.relative_to(folder)): p.read_text()
        for p in folder.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


WHOLE = {"MedTEBSTS/test.jsonl": "one", "train/sts.jsonl": "one"}


def test_two_steps_share_a_folder_in_any_order(tmp_path):
    for order in ((0, 1), (1, 0)):
        out = tmp_path / f"{order}"
        for number in order:
            with placing(out, f"step{number}", (f"train/{number}.jsonl",)) as part:
                (part / "train").mkdir()
                (part / "train" / f"{number}.jsonl").write_text(str(number))
        assert files(out) == {"train/0.jsonl": "0", "train/1.jsonl": "1"}


def test_existing_files_are_never_overwritten(tmp_path):
    out = tmp_path / "out"
    (out / "train").mkdir(parents=True)
    (out / "train" / "sts-pairs.jsonl").write_text("mine")
    with (
        pytest.raises(BuildError, match=r"is not empty: it holds train/sts-pairs\.jsonl"),
        placing(out, "sts", NAMES),
    ):
        pytest.fail("entered")
    (out / "train" / "sts-pairs.jsonl").unlink()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(BuildError, match=r"it holds notes\.txt"):
        refuse_taken(out, "sts", NAMES)
    with pytest.raises(BuildError, match="is not a folder"):
        refuse_taken(out / "notes.txt", "sts", NAMES)


def test_an_error_leaves_no_files(tmp_path):
    out = tmp_path / "out"

    def fail():
        with placing(out, "sts", NAMES) as part:
            write(part)
            raise BuildError("no test")

    with pytest.raises(BuildError, match="no test"):
        fail()
    assert files(out) == {}


class Killed(BaseException):
    """Replaces SIGKILL: nothing is cleaned up after it."""


@pytest.mark.parametrize("moves", range(4))
def test_a_step_killed_at_any_move_can_be_started_again(tmp_path, monkeypatch, moves):
    out = tmp_path / "out"
    left = [moves]
    replace = Path.replace

    def dies(self, target):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies)
        patch.setattr("medteb_mteb.curation.files.place.shutil.rmtree", lambda *a, **k: None)
        try:
            with placing(out, "sts", NAMES) as part:
                write(part, "old")
        except Killed:
            assert moves < 3
    refuse_taken(out, "sts", NAMES)  # its own remains do not count
    if moves == 3:  # all was moved: it is what a finished step leaves
        with pytest.raises(BuildError, match="is not empty"), placing(out, "sts", NAMES) as part:
            pytest.fail("entered")
        assert set(files(out)) == set(WHOLE)
        return
    with placing(out, "sts", NAMES) as part:
        write(part)
    assert files(out) == WHOLE


def test_an_error_in_the_middle_of_the_moves_leaves_no_files(tmp_path, monkeypatch):
    out = tmp_path / "out"
    replace = Path.replace

    def full(self, target):
        if Path(target).name == "sts.jsonl":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    def place():
        with placing(out, "sts", NAMES) as part:
            write(part)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(BuildError, match="No space left"):
            place()
    assert files(out) == {}
    place()
    assert files(out) == WHOLE


def test_an_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(BuildError, match="cannot be written"),
        placing(tmp_path / "file" / "out", "sts", NAMES),
    ):
        pytest.fail("entered")
