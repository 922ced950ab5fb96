from __future__ import annotations

import numpy as np
import pytest

from mar_st.stages.reports import RunCallback
from mar_st.stages.settings import StageSettings


class Encoded(RunCallback):
    def __init__(self):
        self.texts = []

    def on_teacher_encode(self, texts, seconds):
        assert seconds >= 0
        self.texts.append(texts)


class Lengths:
    """A teacher whose vector of a text is its length."""

    def identity(self, role):
        return {"name": "lengths", "role": role}

    def encode(self, texts, role):
        return np.array([[len(text)] for text in texts], dtype=np.float32)


def test_callbacks_receive_the_number_of_texts_that_a_teacher_encodes(tmp_path):
    heard = Encoded()
    settings = StageSettings(
        tmp_path / "run" / "01-align", seed=0, callbacks=(heard,), store=tmp_path / "vectors"
    )
    for texts in (["a", "bb", "a"], ["bb"], ["bb", "ccc"]):
        settings.teacher_store().vectors(Lengths(), texts, "document", show_progress=False)
    assert heard.texts == [2, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["vectors"]


@pytest.mark.parametrize("named", [True, False])
def test_teacher_vectors_are_in_the_given_folder_or_next_to_the_run(tmp_path, monkeypatch, named):
    monkeypatch.delenv("MAR_STORE", raising=False)
    if named:
        monkeypatch.setenv("MAR_STORE", str(tmp_path / "shared"))
    root = StageSettings(tmp_path / "runs" / "mine" / "01-align", seed=0).teacher_store().root
    assert root == (tmp_path / "shared" if named else tmp_path / "runs" / "teacher-store")
