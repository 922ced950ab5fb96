"""Tasks with a local copy of their data: where it is looked for, and what is said without one."""

from __future__ import annotations

import pytest
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from medteb_mteb.abstasks.local_copy import LocalCopy, copy_of, fetch_failed


class Copied(LocalCopy, AbsTaskSTS):
    """A task of the Hub that reads no data."""

    metadata = TaskMetadata(
        name="Copied",
        description="",
        type="STS",
        eval_langs=["cmn-Hans"],
        main_score="cosine_spearman",
        dataset={"path": "org/copied", "revision": "of-the-hub"},
    )

    def __init__(self, folder, revision=lambda folder: "of-the-copy"):
        self.use_copy(folder, revision)
        super().__init__()


def test_a_copy_is_a_folder_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    assert copy_of("Copied") is None
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    assert copy_of("Copied") is None
    (tmp_path / "Copied").touch()
    assert copy_of("Copied") is None
    (tmp_path / "Copied").unlink()
    (tmp_path / "Copied").mkdir()
    assert copy_of("Copied") == tmp_path / "Copied"


def test_the_data_folder_may_be_relative_or_in_the_home_folder(tmp_path, monkeypatch):
    (tmp_path / "data" / "Copied").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in ("data", "./data", "~/data"):
        monkeypatch.setenv("MEDTEB_DATA", root)
        found = copy_of("Copied")
        assert found.is_absolute()
        assert found == tmp_path / "data" / "Copied"


def test_a_copy_has_its_own_revision_and_the_class_keeps_that_of_the_hub(tmp_path):
    of_hub, of_copy = Copied(None), Copied(tmp_path)
    assert (of_hub.metadata.revision, of_copy.metadata.revision) == ("of-the-hub", "of-the-copy")
    assert Copied.metadata.revision == "of-the-hub"
    assert (of_hub.copy_to_read(), of_copy.copy_to_read()) == (None, tmp_path)
    assert of_copy.metadata.descriptive_stat_path.is_relative_to(tmp_path)
    of_copy.unload_data()
    assert of_copy.metadata.revision == "of-the-copy"


@pytest.mark.parametrize("error", [ValueError("malformed"), PermissionError("not yours")])
def test_an_unusable_copy_is_reported_when_it_is_read(tmp_path, error):
    def revision(folder):
        raise error

    task = Copied(tmp_path, revision)
    assert task.metadata.revision == "unreadable-local-copy"
    with pytest.raises(type(error)) as caught:
        task.copy_to_read()
    assert caught.value is error


def test_a_failed_fetch_says_why_and_where_to_put_a_copy(monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    message = str(Copied(None).unavailable(ConnectionError("  unreachable\nand more\n")))
    assert message == (
        "Copied could not be fetched from the Hub (org/copied): ConnectionError: unreachable. On a machine "
        "with access run `hf download --repo-type dataset org/copied --local-dir Copied`, then put the copy "
        "at a folder Copied/ and set MEDTEB_DATA to its parent. Results of tasks that ran before are saved."
    )
    monkeypatch.setenv("MEDTEB_DATA", "/data")
    assert "put the copy at /data/Copied/. Results" in str(Copied(None).unavailable(OSError("x")))


@pytest.mark.parametrize(
    ("error", "reason"),
    [(TimeoutError(), ": TimeoutError. On"), (OSError("x" * 500), f"OSError: {'x' * 300}. On")],
)
def test_reasons_without_words_or_with_too_many_stay_short(error, reason):
    text = str(fetch_failed("a set", "org/set", "Set", error))
    assert reason in text
    assert not text.endswith(" ")
