from __future__ import annotations

import pytest

from medteb_mteb.editions import load_edition
from medteb_mteb.folders import read_folder, task_from_folder

CARD = "---\nmedteb: {name: Clinic, type: Retrieval, prompt: 检索, main_score: recall_at_100}\n---\n"


@pytest.fixture
def folder(retrieval_folder, tmp_path):
    retrieval_folder(tmp_path / "own")
    (tmp_path / "own" / "README.md").write_text(CARD)
    return tmp_path / "own"


def test_a_new_manifest_takes_over_the_settings_of_the_card(medteb, folder):
    code, out, err = medteb("edition", "write", folder, "--license", "mit")
    assert code == 0, err
    edition = load_edition(folder)
    assert out.split()[:2] == ["Clinic", edition.digest]
    assert edition.extra == {"type": "Retrieval", "prompt": "检索", "main_score": "recall_at_100"}
    metadata = task_from_folder(folder).metadata
    assert (metadata.name, metadata.main_score) == ("Clinic", "recall_at_100")
    assert metadata.prompt == {"query": "检索"}


def test_a_manifest_that_contradicts_the_card_is_written_anew(medteb, folder):
    (folder / "README.md").unlink()
    assert medteb("edition", "write", folder, "--license", "mit", "--task", "Other")[0] == 0
    (folder / "README.md").write_text(CARD)
    assert medteb("edition", "write", folder, "--license", "mit", "--task", "Other")[0] == 0
    assert read_folder(folder).name == "Other"
    assert load_edition(folder).extra["prompt"] == "检索"
