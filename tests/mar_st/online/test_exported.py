"""Exported encoders: the original's vectors, without torch, alone or together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mar_st.online.batcher import MicroBatcher
from mar_st.online.encoders import load_query_encoder
from mar_st.online.protocol import EncoderError
from tests.mar_st.export.conftest import TEXTS, exported, gte_folder  # noqa: F401 -- fixtures


@pytest.fixture(scope="module")
def encoder(exported):  # noqa: F811
    return load_query_encoder(exported[0], backend="openvino-fp32", threads=1)


@pytest.fixture(scope="module")
def original(gte_folder):  # noqa: F811
    return load_query_encoder(gte_folder)


def test_vectors_and_tokens_are_those_of_the_original(encoder, original):
    vectors = encoder.encode(TEXTS)
    assert (vectors.dtype, vectors.flags.c_contiguous) == (np.float32, True)
    np.testing.assert_allclose(vectors, original.encode(TEXTS), atol=1e-5)
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(encoder, name) == getattr(original, name)
    assert encoder.listing.model["identity"] == original.identity
    assert encoder.encode([]).shape == (0, encoder.dim) == original.encode([]).shape
    texts = ["头疼", "", "头疼" * 40]
    assert encoder.count_tokens(texts) == original.count_tokens(texts) == [6, 4, 84]


def test_stored_prompts_go_before_queries(encoder, original):
    bare = encoder.encode(["头疼"], prompt_name="document")
    assert np.abs(bare - encoder.encode(["头疼"])).max() > 1e-3
    np.testing.assert_allclose(bare, original.encode(["头疼"], prompt_name="document"), atol=1e-5)
    for loaded in (encoder, original):
        with pytest.raises(EncoderError, match="no prompt 'nix'"):
            loaded.encode(["头疼"], prompt_name="nix")


@pytest.mark.parametrize("variant", ["fp32", "int8"])
def test_a_vector_does_not_depend_on_its_batch(exported, variant):  # noqa: F811
    encoder = load_query_encoder(exported[0], backend=f"openvino-{variant}", threads=2)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, atol=1e-5)
    with MicroBatcher(encoder) as batcher, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: batcher.submit([TEXTS[i % 6]]).result(20), range(48)))
    np.testing.assert_allclose(np.concatenate(answers), np.tile(alone, (8, 1)), atol=1e-5)


def test_torch_and_telemetry_are_not_imported(exported):  # noqa: F811
    code = (
        "import sys\nfrom mar_st import load_query_encoder\n"
        f"print(load_query_encoder({str(exported[0])!r}).encode(['头疼']).shape)\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'openvino_telemetry'}\n"
        "print([name for name in heavy if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(1, 32)", "[]"]


def test_each_variant_has_its_own_identity_and_missing_ones_are_refused(exported):  # noqa: F811
    out, listing = exported
    identities = {load_query_encoder(out, backend=name, threads=1).identity for name in listing.variants}
    assert len(identities) == len(listing.variants)
    assert load_query_encoder(out).variant.name == listing.chosen
    with pytest.raises(EncoderError, match="no 'onnx'; it has openvino-fp32"):
        load_query_encoder(out, backend="onnx")


@pytest.mark.parametrize(("name", "value"), [("dim", 33), ("filler", 10**6)])
def test_a_setting_that_does_not_fit_the_files_is_one_error(exported, tmp_path, name, value):  # noqa: F811
    from tests.mar_st.online.conftest import ExportFolder

    shutil.copytree(exported[0], tmp_path / "copy")
    ExportFolder(tmp_path / "copy").change(**{name: value})
    with pytest.raises(EncoderError, match="xport"):
        load_query_encoder(tmp_path / "copy", backend="openvino-fp32", threads=1).encode(["头疼"])


@pytest.mark.slow
def test_signals_are_handled_after_encoders_are_gone(exported):  # noqa: F811
    """OpenVINO frees the stack that it gives to signal handlers; the next signal then ended the process."""
    code = (
        "import gc, os, signal\nfrom mar_st import load_query_encoder\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('handled'))\n"
        f"load = lambda: load_query_encoder({str(exported[0])!r}, backend='openvino-fp32', threads=1)\n"
        "first, second = load(), load()\n"
        "del first\ngc.collect()\ndel second\ngc.collect()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["handled", "alive"])
