from __future__ import annotations

import json
import multiprocessing
import os
import stat

import pytest
from filelock import FileLock

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import BuildError, Dropped, Text
from medteb_mteb.curation.files.step import run_step
from medteb_mteb.folders.problems import FolderError


class Unseen:
    """Drops a text that it has seen before: what it does depends on all earlier shards."""

    name = "unseen"

    def __init__(self, mark: str = "", stop: int | None = None) -> None:
        self.mark, self.stop, self.seen, self.calls = mark, stop, set(), 0

    def settings(self):
        return {"mark": self.mark}

    def restore(self, kept):
        self.seen.update(text.text.removesuffix(self.mark) for text in kept)

    def __call__(self, texts):
        self.calls += 1
        if self.calls == self.stop:
            os._exit(9)  # as by a kill: nothing is cleaned up
        for text in texts:
            if text.text in self.seen:
                yield Dropped(text, "seen", text.text[:2])
            else:
                self.seen.add(text.text)
                yield Text(text.id, text.text + self.mark, text.title, "test/1", text.meta)


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "raw.jsonl"
    # Line separators of Unicode do not end a line of JSON.
    rows = [{"_id": f"{i}\u2028", "text": f"第{i % 17}条", "title": "\x85", "n": i} for i in range(50)]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_a_step_counts_what_it_drops_and_its_folder_is_a_source(source, tmp_path):
    report = run_step(Unseen("！"), source, tmp_path / "out", shard=8)
    assert (report.read, report.kept, report.dropped, report.resumed) == (50, 17, {"seen": 33}, 0)
    texts = list(read_texts(tmp_path / "out"))
    assert [text.text for text in texts] == [f"第{i}条！" for i in range(17)]
    assert texts[3].anonymised == "test/1"
    assert texts[3].meta == {"n": 3}
    names = set(files(tmp_path / "out"))
    assert {"step.json", "manifest.json", "records-00006.jsonl", "dropped-00006.jsonl"} <= names
    assert not [name for name in names if name.startswith("shard-") or name.endswith(".part")]
    run_step(Unseen("？"), tmp_path / "out", tmp_path / "next")
    (before,) = json.loads((tmp_path / "next" / "manifest.json").read_text("utf-8"))["before"]
    assert (before["step"], before["settings"], before["kept"]) == ("unseen", {"mark": "！"}, 17)


def test_copies_of_texts_without_an_id_are_counted_as_dropped(tmp_path):
    file = tmp_path / "raw.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b"}\n{"text": "a"}\n{"text": "a"}\n', encoding="utf-8")
    report = run_step(Unseen(), file, tmp_path / "out")
    assert (report.read, report.kept, report.dropped) == (4, 2, {"repeated": 2})
    again = run_step(Unseen(), file, tmp_path / "out")
    assert (again.read, again.kept, again.dropped) == (4, 2, {"repeated": 2})


@pytest.mark.parametrize("stop", [1, 2, 5, 7])
def test_resumed_equals_uninterrupted(source, tmp_path, stop):
    run_step(Unseen(), source, tmp_path / "whole", shard=8)
    child = multiprocessing.get_context("fork").Process(
        target=run_step, args=(Unseen(stop=stop), source, tmp_path / "out"), kwargs={"shard": 8}
    )
    child.start()
    child.join()
    assert child.exitcode == 9
    assert not (tmp_path / "out" / "manifest.json").exists()
    step = Unseen()
    report = run_step(step, source, tmp_path / "out", shard=8)
    assert report.resumed == 8 * (stop - 1)
    assert step.calls == 7 - (stop - 1)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_finished_step_is_unchanged(source, tmp_path):
    first = run_step(Unseen(), source, tmp_path / "out")
    step = Unseen()
    again = run_step(step, source, tmp_path / "out")
    assert (step.calls, again.kept, again.resumed) == (0, first.kept, 50)


@pytest.mark.parametrize("change", ["settings", "input", "shard size", "step"])
def test_a_folder_of_something_else_is_refused(source, tmp_path, change):
    run_step(Unseen(), source, tmp_path / "out", shard=8)
    step = Unseen("!" if change == "settings" else "")
    if change == "step":
        step.name = "other"
    if change == "input":
        source.write_text('{"text": "x"}\n', encoding="utf-8")
    with pytest.raises(BuildError, match=f"holds a step unseen with other {change}"):
        run_step(step, source, tmp_path / "out", shard=9 if change == "shard size" else 8)


def test_bad_rows_are_reported_before_any_work(source, tmp_path):
    with source.open("a", encoding="utf-8") as stream:
        stream.write('{"text": ""}\n')
    step = Unseen()
    with pytest.raises(FolderError, match=r"raw\.jsonl:51"):
        run_step(step, source, tmp_path / "out", shard=8)
    assert step.calls == 0
    assert not (tmp_path / "out").exists()


def test_unusable_folders_are_refused(source, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("x")
    with pytest.raises(BuildError, match=r"is not empty \(notes.txt\)"):
        run_step(Unseen(), source, tmp_path / "full")
    run_step(Unseen(), source, tmp_path / "out")
    with pytest.raises(BuildError, match="is the input"):
        run_step(Unseen(), tmp_path / "out", tmp_path / "out")
    with FileLock(tmp_path / "out" / ".lock"), pytest.raises(BuildError, match="Another process is writing"):
        run_step(Unseen(), source, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(BuildError, match="not finished"):
        list(read_texts(tmp_path / "out"))


def test_a_full_disk_keeps_what_is_finished(source, tmp_path, monkeypatch):
    from medteb_mteb.curation.files import step as module

    real, written = os.fsync, []

    def fails(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            written.append(descriptor)
        if len(written) == 8:
            raise OSError(28, "No space left on device")
        real(descriptor)

    run_step(Unseen(), source, tmp_path / "whole", shard=8)
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(BuildError, match=r"No space left on device.*kept"):
        run_step(Unseen(), source, tmp_path / "out", shard=8)
    monkeypatch.setattr(os, "fsync", real)
    assert module.run_step(Unseen(), source, tmp_path / "out", shard=8).resumed == 16
    assert files(tmp_path / "out") == files(tmp_path / "whole")
