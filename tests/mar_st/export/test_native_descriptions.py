"""Descriptions of native encoders that are broken or corrupted."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mar_st.online import EncoderError
from mar_st.online.native import NativeRuntime
from tests.mar_st.export.conftest import make_model, native

pytestmark = pytest.mark.usefixtures("kernels")


def test_a_broken_description_is_one_clear_error(tmp_path):
    native(make_model("qwen3", "lasttoken", dense=8), tmp_path)
    path = tmp_path / "native-int8.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "tables": 10**9}), encoding="utf-8")
    with pytest.raises(EncoderError, match=r"native-int8.json cannot be used: .* Export the encoder again"):
        NativeRuntime(path, {}, 1)


CORRUPTED = """
import copy, json, random, sys
from pathlib import Path
import numpy as np
from mar_st.online.native import NativeRuntime
from mar_st.online import EncoderError

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
path = folder / "native-int8.json"
content = json.loads(path.read_text())
rows, hidden = 21, content["model"]["hidden"]
inputs = {
    "embeddings": np.random.default_rng(0).standard_normal((rows, hidden)).astype(np.float32),
    "positions": np.arange(rows, dtype=np.int64),
    "segments": np.zeros(rows, dtype=np.int32),
    "pool": np.zeros(1, dtype=np.int64),
}

def places(part, way=()):
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for name, value in items:
        yield (*way, name)
        if isinstance(value, (dict, list)):
            yield from places(value, (*way, name))

values = random.Random(seed)
opened = refused = 0
for way in list(places(content)):
    for _ in range(6):
        other = copy.deepcopy(content)
        part = other
        for name in way[:-1]:
            part = part[name]
        before = part[way[-1]]
        number = before if isinstance(before, (int, float)) else 0
        new = values.choice([
            -1, 0, 1, 2, 3, number + 1, number - 1, number * 2, number + 64, number - 64, number + 2**32,
            number - 2**32, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 10**30, 1e30, 1e300, 0.5,
            float("nan"), float("inf"), "x", "", None, True, [], {}, [1], {"absent": 1},
            values.randrange(2**20) * 64, values.randrange(4096), ...,
        ])
        if new is ...:
            del part[way[-1]]
        else:
            part[way[-1]] = new
        path.write_text(json.dumps(other))
        try:
            NativeRuntime(path, {}, 1).run(inputs)
            opened += 1
        except EncoderError as error:
            assert "\\n" not in str(error)
            refused += 1
print(opened, refused)
"""


@pytest.mark.parametrize(("kind", "pooling"), [("gte", "cls"), ("bert", "cls"), ("qwen3", "lasttoken")])
def test_a_description_with_any_field_corrupted_is_an_error_or_harmless(tmp_path, kind, pooling):
    native(make_model(kind, pooling, dense=8), tmp_path)
    process = subprocess.run(
        [sys.executable, "-c", CORRUPTED, str(tmp_path), "7"], capture_output=True, text=True, timeout=250
    )
    assert process.returncode == 0, (process.returncode, process.stderr[-2000:])
    opened, refused = map(int, process.stdout.split())
    assert refused > 300
    assert opened > 20  # other places of weights and other settings are not wrong in themselves


def test_a_table_of_another_width_is_refused(tmp_path):
    computes, front = native(make_model("gte"), tmp_path)
    inputs = next(iter(front.packs(["头疼"]))).inputs
    for width in (8, 31, 33, 64):
        other = {**inputs, "embeddings": np.zeros((len(inputs["embeddings"]), width), dtype=np.float32)}
        with pytest.raises(EncoderError, match=r"shape \(16, "):
            computes.run(other)
    for pool in (np.array([16]), np.array([-1]), np.array([10**9])):
        with pytest.raises(EncoderError, match="Pooling asks for more"):
            computes.run({**inputs, "pool": pool})


@pytest.mark.parametrize("how", ["floats", "two dimensions", "cut", "no header", "gone", "odd start"])
def test_weights_other_than_plain_bytes_are_refused(tmp_path, how):
    native(make_model("gte"), tmp_path)
    path = tmp_path / "native-int8.npy"
    content = np.load(path)
    if how == "floats":
        np.save(path, content[: len(content) // 8 * 8].view(np.float64))
    elif how == "two dimensions":
        np.save(path, content.reshape(2, -1) if len(content) % 2 == 0 else content[None])
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-64])
    elif how == "no header":
        path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{" + b"(" * 50_000)
    elif how == "gone":
        path.unlink()
    else:
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,)}" % len(content)
        header = header.ljust(100) + b"\n"
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        path.write_bytes(start + content.tobytes())
    with pytest.raises(EncoderError, match=r"native-int8.json cannot be used: .* Export the encoder again"):
        NativeRuntime(tmp_path / "native-int8.json", {}, 1)
