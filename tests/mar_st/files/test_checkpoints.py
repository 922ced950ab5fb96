from __future__ import annotations

import pytest

from mar_st.files.checkpoints import last_checkpoint


@pytest.fixture
def checkpoints(tmp_path):
    def make(step, state):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trained.safetensors").write_bytes(b"")
        if state is not None:
            (folder / "trainer_state.json").write_text(state)

    make(9, "{}")
    make(10, "{}")
    make(100, '{"cut of')
    make(200, None)
    return tmp_path


def test_the_newest_complete_checkpoint_is_found_and_broken_ones_go(checkpoints):
    assert last_checkpoint(checkpoints) == str(checkpoints / "checkpoint-10")
    assert {path.name for path in checkpoints.iterdir()} == {"checkpoint-9", "checkpoint-10"}


def test_other_processes_do_not_delete_checkpoints(checkpoints):
    assert last_checkpoint(checkpoints, delete=False) == str(checkpoints / "checkpoint-10")
    assert len(list(checkpoints.iterdir())) == 4


def test_a_folder_without_checkpoints_has_no_last_one(tmp_path):
    assert last_checkpoint(tmp_path / "nothing") is None
