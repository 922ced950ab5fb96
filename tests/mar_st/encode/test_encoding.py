"""Tests that resumed, extended and parallel runs of `encode_corpus` write the same bytes as a single run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from filelock import FileLock

from mar_st import MAR
from mar_st.encode import CorpusError, EncodeSettings, VectorFolder, write_vectors
from mar_st.encode import encoding as run_module
from mar_st.encode import local as local_module
from mar_st.encode.encoding import EncodeError
from mar_st.encode.folder import text_digests
from mar_st.encode.worker import Worker
from mar_st.errors import MarError
from mar_st.model.space import space_of
from tests.mar_st.encode.corpora import ATOL, encode, files, rows, write
from tests.mar_st.encode.older import without_digests

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
    assert folder.manifest["count"] == 100
    assert [shard["count"] for shard in folder.manifest["shards"]] == [16] * 6 + [4]
    folder.verify()


@pytest.mark.thorough(but=["settings0-2e-06", "settings3-0.05"])
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        (EncodeSettings(dtype="float32"), 2e-6),
        (EncodeSettings(precision="float16"), 1e-3),
        (EncodeSettings(precision="int8"), 5e-3),
        (EncodeSettings(dtype="bfloat16"), 5e-2),
        (EncodeSettings(dim=16), None),
        (EncodeSettings(precision="binary", dim=16), None),
    ],
)
def test_vectors_match_the_model_in_every_precision_and_dimension(
    model: Path, corpus: Path, tmp_path: Path, settings: EncodeSettings, tolerance: float | None
) -> None:
    folder = encode(model, corpus, tmp_path / "v", settings)
    expected = MAR.from_pretrained(model, device="cpu").encode_corpus(rows(100))
    if tolerance is not None:
        np.testing.assert_allclose(folder[:], expected, atol=tolerance)
        return
    cut = expected[:, :16]
    assert folder.dim == 16
    if settings.precision == "binary":
        np.testing.assert_array_equal(folder[:] > 0, cut > 0)
    else:
        np.testing.assert_allclose(folder[:], cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=ATOL)


@pytest.mark.thorough(but=["1"])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_stopped_and_started_again_it_gives_the_same_files(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str], after: int, monkeypatch: Any
) -> None:
    original = Worker.run

    def stops(self: Worker, numbers: Any, done: Any) -> None:
        finished = []

        def count(number: int) -> None:
            finished.append(number)
            done(number)
            if len(finished) > after:
                raise KeyboardInterrupt

        original(self, numbers, count)

    monkeypatch.setattr(Worker, "run", stops)
    with pytest.raises(KeyboardInterrupt):
        encode(model, corpus, tmp_path / "v")
    monkeypatch.undo()
    with pytest.raises(MarError, match="not finished"):
        VectorFolder.open(tmp_path / "v")
    left = files(tmp_path / "v")
    (tmp_path / "v" / "shards" / "000009.arrow.ab.part").write_bytes(b"half")
    encoded: list[int] = []
    run_here = local_module.run_here
    monkeypatch.setattr(
        run_module,
        "run_here",
        lambda job, numbers, done: (encoded.extend(numbers), run_here(job, numbers, done)),
    )

    encode(model, corpus, tmp_path / "v")

    assert files(tmp_path / "v") == whole
    assert encoded == list(range(after + 1, 7))
    assert {name: whole[name] for name in left} == left


def test_a_finished_folder_is_left_alone(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str], monkeypatch: Any
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(run_module, "run_here", refuse)
    assert len(encode(model, corpus, tmp_path / "whole")) == 100
    assert files(tmp_path / "whole") == whole


@pytest.mark.parametrize("older", [False, True], ids=["digests", "without"])
@pytest.mark.parametrize("end", ["safetensors", "arrow"])
def test_a_damaged_shard_is_encoded_again(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str], end: str, older: bool
) -> None:
    out = tmp_path / "whole"
    if older:
        without_digests(out)
    for number in (2, 4):  # one with a flipped bit, one that a power cut left as zeros
        path = out / "shards" / f"{number:06d}.{end}"
        content = bytearray(path.read_bytes())
        content[-200 if end == "safetensors" else 300] ^= 1
        path.write_bytes(content if number == 2 else bytes(len(content)))
    said: list[str] = []

    folder = encode(model, corpus, out, say=said.append)

    folder.verify()
    repaired = [name for name in whole if name.startswith(("shards/000002", "shards/000004"))]
    now = files(out)
    assert {name: now[name] for name in repaired} == {name: whole[name] for name in repaired}
    assert [line.split(" ")[0].rpartition("/")[2] for line in said if "encoded again" in line] == [
        f"000002.{end}", f"000004.{end}"
    ]  # fmt: skip
    assert "32 of 100 documents to encode, in 2 shards" in said


def test_shards_behind_a_link_are_not_written(model: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "kept.part").write_text("precious")
    (tmp_path / "v" / "shards").symlink_to(tmp_path / "home")
    with pytest.raises(MarError, match="symbolic link"):
        encode(model, corpus, tmp_path / "v")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["kept.part"]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [36, 48])
def test_appended_documents_give_the_folder_of_a_full_run(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str], number: int, monkeypatch: Any
) -> None:
    write(corpus, rows(number))
    encode(model, corpus, tmp_path / "v")
    write(corpus, rows(100))
    encoded: list[int] = []
    run_here = local_module.run_here
    monkeypatch.setattr(
        run_module,
        "run_here",
        lambda job, numbers, done: (encoded.extend(numbers), run_here(job, numbers, done)),
    )

    folder = encode(model, corpus, tmp_path / "v")

    assert files(folder.path) == whole
    assert encoded == list(range(number // 16, 7))


def test_another_model_setting_or_corpus_is_refused(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    out = tmp_path / "whole"
    with pytest.raises(
        EncodeError, match=r"max_length: was the default, now 8; precision: was 'float32', now 'int8'"
    ):
        encode(model, corpus, out, EncodeSettings(shard=16, tokens=128, precision="int8", max_length=8))
    other = tmp_path / "other"
    MAR.from_pretrained(model, device="cpu").save_pretrained(str(other))
    path = next(other.glob("document_0*/config.json"))
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    with pytest.raises(EncodeError, match=r"model: was .*mar, now it is .*other"):
        encode(other, corpus, out)
    changed = rows(100)
    changed[20]["text"] = "发热"
    write(corpus, changed)
    with pytest.raises(EncodeError, match=r"the text of document 21 \(d20\) is another"):
        encode(model, corpus, out)
    write(corpus, [rows(100)[1], rows(100)[0], *rows(100)[2:]])
    with pytest.raises(EncodeError, match="document 1 was d0, now it is d1"):
        encode(model, corpus, out)
    write(corpus, rows(98))
    with pytest.raises(EncodeError, match=r"document 99 \(d98\) is no longer there"):
        encode(model, corpus, out)
    write(corpus, rows(50))
    with pytest.raises(EncodeError, match=r"longer corpus: .* has 50 documents now"):
        encode(model, corpus, out)
    assert files(out) == whole


@pytest.mark.thorough
def test_another_query_encoder_does_not_change_the_model(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    other = tmp_path / "other"
    MAR.from_pretrained(model, device="cpu").save_pretrained(str(other))
    settings = other / "config_sentence_transformers.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps(content | {"prompts": {**content["prompts"], "query": "问："}}))
    assert len(encode(other, corpus, tmp_path / "whole")) == 100


def test_invalid_settings_are_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    write(corpus, [*rows(5), rows(1)[0]])
    with pytest.raises(CorpusError, match="the id 'd0' occurs twice"):
        encode(model, corpus, tmp_path / "v")
    write(corpus, rows(5))
    with pytest.raises(MarError, match="There is no folder"):
        encode(tmp_path / "nothing", corpus, tmp_path / "w")
    write_vectors(tmp_path / "x", ["a"], np.ones((1, 4)))
    with pytest.raises(EncodeError, match="did not write"):
        encode(model, corpus, tmp_path / "x")
    with pytest.raises(EncodeError, match="of one kind"):
        encode(model, corpus, tmp_path / "y", devices=["cpu", "cuda:0"])
    (tmp_path / "z").mkdir()
    with FileLock(tmp_path / "z" / ".lock"), pytest.raises(EncodeError, match="Another process"):
        encode(model, corpus, tmp_path / "z")


def command(model: Path, corpus: Path, out: Path, *more: str) -> list[str]:
    code = (
        "import sys; from mar_st.encode import EncodeSettings, encode_corpus; "
        "encode_corpus(sys.argv[1], sys.argv[2], sys.argv[3], EncodeSettings(shard=16, tokens=128), "
        "workers=int(sys.argv[4]), show_progress=False)"
    )
    return [sys.executable, "-c", code, str(model), str(corpus), str(out), *(more or ("1",))]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_at_any_moment_it_gives_the_same_files(model: Path, tmp_path: Path, workers: str) -> None:
    corpus = write(tmp_path / "corpus.jsonl", rows(3000))
    settings = EncodeSettings(shard=16, tokens=128)
    whole = files(encode(model, corpus, tmp_path / "whole", settings).path)
    rng, kills = random.Random(0), 0
    for _ in range(8):
        process = subprocess.Popen(command(model, corpus, tmp_path / "v", workers), start_new_session=True)
        shards, limit = tmp_path / "v" / "shards", rng.randrange(10, 40)
        before = len(list(shards.glob("*.safetensors")))
        while process.poll() is None and len(list(shards.glob("*.safetensors"))) < before + limit:
            time.sleep(rng.random() * 0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 4
    subprocess.run(command(model, corpus, tmp_path / "v", workers), check=True)
    assert files(tmp_path / "v") == whole


def test_a_failed_start_leaves_no_new_folder(model: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(CorpusError, match="holds no documents"):
        encode(model, tmp_path / "empty.jsonl", tmp_path / "v")
    with pytest.raises(MarError, match="There is no folder"):
        encode(tmp_path / "gone", corpus, tmp_path / "v")
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize("record", [None, "", "{}"])
def test_a_failed_start_binds_the_folder_to_no_settings(
    model: Path, corpus: Path, tmp_path: Path, record: str | None
) -> None:
    (tmp_path / "v").mkdir()
    with pytest.raises(CorpusError, match="no corpus"):
        encode(model, tmp_path / "none.jsonl", tmp_path / "v", EncodeSettings(shard=64, dim=8))
    with pytest.raises(MarError, match="999 of them cannot be kept"):
        encode(model, corpus, tmp_path / "v", EncodeSettings(dim=999))
    if record is not None:
        (tmp_path / "v" / "encode.json").write_text(record)
    assert encode(model, corpus, tmp_path / "v", EncodeSettings(shard=64)).dim == 32


def test_damaged_and_copied_files_of_a_folder_are_one_error_or_left_alone(
    model: Path, tmp_path: Path
) -> None:
    corpus, out = write(tmp_path / "corpus.jsonl", rows(20)), tmp_path / "v"
    settings = EncodeSettings(shard=16)
    encode(model, corpus, out, settings)
    first = out / "shards" / "000000.safetensors"
    copy = out / "shards" / "000000 (conflicted copy).safetensors"
    copy.write_bytes(first.read_bytes())
    assert len(encode(model, corpus, out, settings)) == 20
    for record in ("", "{}", '{"model": {}, "settings": []}'):
        (out / "encode.json").write_text(record)
        with pytest.raises(EncodeError, match=r"encode\.json is damaged"):
            encode(model, corpus, out, settings)
