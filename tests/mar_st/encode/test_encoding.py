"""Resumed runs of `encode_corpus` write the same bytes as a single run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from filelock import FileLock

from mar_st import MAR
from mar_st.encode.encoding import Worker
from mar_st.encode.folder import VectorFolder, text_digests, write_vectors
from mar_st.encode.settings import EncodeSettings
from mar_st.errors import MarError
from mar_st.model.digest import space_of
from tests.conftest import write_jsonl
from tests.mar_st.encode.corpora import ATOL, encode, files, rows

if TYPE_CHECKING:
    from pathlib import Path


def test_vectors_are_those_of_the_model_in_the_order_of_the_corpus(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    folder = encode(model, corpus, tmp_path / "v")

    expected = MAR.from_pretrained(model, device="cpu").encode_corpus(rows(100))
    np.testing.assert_allclose(folder[:], expected, atol=ATOL)
    assert folder.ids.to_pylist() == [f"d{i}" for i in range(100)]
    documents = [f"{row['title']}\n{row['text']}" if row["title"] else row["text"] for row in rows(100)]
    assert folder.text_digests.to_pylist() == text_digests(documents)
    assert (folder.dim, folder.normalised, folder.similarity) == (32, True, "cosine")
    assert folder.space == space_of(model)
    assert [shard["count"] for shard in folder.manifest["shards"]] == [16] * 6 + [4]
    folder.verify()


def test_only_the_document_side_is_loaded(model: Path, corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    for folder in copy.glob("query_*"):
        shutil.rmtree(folder)
    expected = MAR.from_pretrained(model, device="cpu").encode_corpus(rows(100))
    np.testing.assert_allclose(encode(copy, corpus, tmp_path / "v")[:], expected, atol=ATOL)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"dtype": "float32"}, 2e-6),
        ({"precision": "float16"}, 1e-3),
        ({"dtype": "bfloat16"}, 5e-2),
        ({"dim": 16}, ATOL),
    ],
)
def test_vectors_match_the_model_in_every_precision_and_dimension(
    model: Path, corpus: Path, tmp_path: Path, options: dict[str, Any], tolerance: float
) -> None:
    folder = encode(model, corpus, tmp_path / "v", EncodeSettings(**options))
    expected = MAR.from_pretrained(model, device="cpu").encode_corpus(rows(100))
    if "dim" in options:
        expected = expected[:, :16] / np.linalg.norm(expected[:, :16], axis=1, keepdims=True)
    np.testing.assert_allclose(folder[:], expected, atol=tolerance)


def counted(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[int]:
    """Numbers of the shards that workers finish from now on; the run is interrupted after some."""
    finished: list[int] = []
    original = Worker.run

    def run(self: Worker, numbers: Any, done: Any) -> None:
        def count(number: int) -> None:
            finished.append(number)
            done(number)
            if len(finished) == stop_after:
                raise KeyboardInterrupt

        original(self, numbers, count)

    monkeypatch.setattr(Worker, "run", run)
    return finished


def test_stopped_and_started_again_it_gives_the_same_files(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        counted(patch, stop_after=2)
        with pytest.raises(KeyboardInterrupt):
            encode(model, corpus, tmp_path / "v")
    with pytest.raises(MarError, match="not finished"):
        VectorFolder.open(tmp_path / "v")
    encoded = counted(monkeypatch)
    encode(model, corpus, tmp_path / "v")
    assert files(tmp_path / "v") == whole
    assert encoded == list(range(2, 7))
    encode(model, corpus, tmp_path / "v")  # complete
    assert encoded == list(range(2, 7))


def test_another_model_setting_or_corpus_is_refused(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    out = tmp_path / "whole"
    with pytest.raises(MarError, match=r"precision: was float32, now float16; max_length: was None, now 8"):
        encode(model, corpus, out, EncodeSettings(precision="float16", max_length=8))
    other = tmp_path / "other"
    MAR.from_pretrained(model, device="cpu").save_pretrained(str(other))
    path = next(other.glob("document_0*/config.json"))
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    with pytest.raises(MarError, match="model: was"):
        encode(other, corpus, out)
    for content in ([rows(100)[1], rows(100)[0], *rows(100)[2:]], rows(101)):
        write_jsonl(corpus, content)
        with pytest.raises(MarError, match="corpus: was"):
            encode(model, corpus, out)
    assert files(out) == whole


def test_what_cannot_be_encoded_is_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "twice.jsonl", [*rows(5), rows(1)[0]])
    with pytest.raises(MarError, match="the id 'd0' occurs twice"):
        encode(model, tmp_path / "twice.jsonl", tmp_path / "v")
    with pytest.raises(MarError, match="There is no folder"):
        encode(tmp_path / "nothing", corpus, tmp_path / "v")
    assert not (tmp_path / "v").exists()
    with pytest.raises(MarError, match="999 of them cannot be kept"):
        encode(model, corpus, tmp_path / "w", EncodeSettings(dim=999))
    assert len(encode(model, corpus, tmp_path / "w")) == 100  # a failed start binds it to no settings
    write_vectors(tmp_path / "x", ["a"], np.ones((1, 4)))
    with pytest.raises(MarError, match="another model or corpus"):
        encode(model, corpus, tmp_path / "x")
    (tmp_path / "z").mkdir()
    with FileLock(tmp_path / "z" / ".lock"), pytest.raises(MarError, match="Another process"):
        encode(model, corpus, tmp_path / "z")


@pytest.mark.slow
def test_killed_it_resumes_to_the_same_files(model: Path, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", rows(400))
    whole = files(encode(model, corpus, tmp_path / "whole").path)
    code = "import sys; from mar_st import encode_corpus; encode_corpus(*sys.argv[1:4], shard=16)"
    command = [sys.executable, "-c", code, str(model), str(corpus), str(tmp_path / "v")]
    shards, kills = tmp_path / "v" / "shards", 0
    for limit in (1, 8):
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and len(list(shards.glob("0*.arrow"))) < limit:
            time.sleep(0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills
    subprocess.run(command, check=True)
    assert files(tmp_path / "v") == whole
