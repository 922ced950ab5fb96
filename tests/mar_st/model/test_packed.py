"""`mar_st.model.packed`."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tools.pack import pack

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.packed import MANIFEST, TENSORS_FILE, unpack, unpacked_folder


@pytest.fixture
def saved(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"), create_model_card=False)
    return tmp_path / "mar"


def test_an_unpacked_model_gives_the_vectors_of_the_original(saved, mar, tmp_path, queries, documents):
    pack(saved, tmp_path / "packed")
    assert (tmp_path / "packed" / TENSORS_FILE).stat().st_mode & 0o044 == 0o044  # others may read it
    unpack(tmp_path / "packed", tmp_path / "out")
    texts = {
        "encode_query": queries,
        "encode_document": [one if isinstance(one, str) else one["text"] for one in documents],
    }
    for model in (MAR.from_pretrained(tmp_path / "out"), SentenceTransformer(str(tmp_path / "out"))):
        model.float()
        for encode, asked in texts.items():
            expected, got = (getattr(one, encode)(asked) for one in (mar, model))
            assert (expected * got).sum(1).min() > 0.99


def test_codes_are_within_half_a_step_and_zero_rows_stay(tmp_path):
    from safetensors.torch import load_file, save_file

    matrix = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    matrix[3] = 0
    huge = torch.full((2,), 1e30)
    (tmp_path / "model").mkdir()
    save_file({"a": matrix, "same": matrix.clone(), "huge": huge, "ids": torch.arange(3)},
              str(tmp_path / "model" / "model.safetensors"))  # fmt: skip
    pack(tmp_path / "model", tmp_path / "packed")
    unpack(tmp_path / "packed", tmp_path / "out")
    unpacked = load_file(str(tmp_path / "out" / "model.safetensors"))
    step = matrix.abs().amax(1, keepdim=True) / 127
    assert ((unpacked["a"].float() - matrix).abs() <= 0.52 * step).all()
    assert torch.equal(unpacked["same"], unpacked["a"])
    assert torch.equal(unpacked["huge"], huge)
    assert torch.equal(unpacked["ids"], torch.arange(3))
    assert len(load_file(str(tmp_path / "packed" / TENSORS_FILE))) == 4  # equal matrices are stored once


def test_packing_an_unpacked_model_gives_the_same_bytes(tmp_path):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    (tmp_path / "model").mkdir()
    rows = torch.randn(500, 64) * torch.logspace(-1, 2, 500)[:, None]
    matrices = {"a": rows, "b": torch.randn(8, 3, 5).half()}
    save_file(matrices, str(tmp_path / "model" / "model.safetensors"))
    pack(tmp_path / "model", tmp_path / "packed")
    unpack(tmp_path / "packed", tmp_path / "unpacked")
    pack(tmp_path / "unpacked", tmp_path / "again")
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("packed", "again")
    ]
    assert contents[0] == contents[1]


def test_a_model_is_unpacked_into_the_cache_once(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("MAR_CACHE", str(tmp_path / "cache"))
    pack(saved, tmp_path / "packed")
    folder = unpacked_folder(tmp_path / "packed", "model")
    written = (folder / "modules.json").stat().st_mtime_ns
    assert unpacked_folder(tmp_path / "packed", "model") == folder
    assert (folder / "modules.json").stat().st_mtime_ns == written
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]  # nothing aside is left
    code = (
        "import sys; from mar_st.model.packed import unpacked_folder; "
        f"print(unpacked_folder({str(tmp_path / 'packed')!r}, 'model'), 'torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == [str(folder), "False"]


def test_folders_without_a_model_or_damaged_are_refused(saved, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MarError, match=r"holds no \.safetensors"):
        pack(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(MarError, match="exists"):
        pack(saved, tmp_path / "empty")
    with pytest.raises(MarError, match="not a packed model"):
        unpack(saved, tmp_path / "out")
    pack(saved, tmp_path / "packed")
    for damage in ("cut", "flipped", "outside"):
        shutil.copytree(tmp_path / "packed", tmp_path / damage)
    tensors = tmp_path / "cut" / TENSORS_FILE
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.raises(MarError, match="Install it again"):
        unpack(tmp_path / "cut", tmp_path / "out")
    tensors = tmp_path / "flipped" / TENSORS_FILE
    content = bytearray(tensors.read_bytes())
    content[-1000] ^= 1
    tensors.write_bytes(content)
    with pytest.raises(MarError, match="holds other bytes than were packed"):
        unpack(tmp_path / "flipped", tmp_path / "out")
    listing = json.loads((tmp_path / "outside" / MANIFEST).read_text())
    listing["weights"] = {"../../../evil.safetensors": next(iter(listing["weights"].values()))}
    (tmp_path / "outside" / MANIFEST).write_text(json.dumps(listing))
    with pytest.raises(MarError, match="is not a file below"):
        unpack(tmp_path / "outside", tmp_path / "out")
    assert not (tmp_path / "out").exists()
