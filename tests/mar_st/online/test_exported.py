"""Exported encoders: the original's vectors, without torch, alone or together."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.model.names import model_folder
from mar_st.online import EncoderError, MicroBatcher, load_query_encoder
from tests.mar_st.export.conftest import TEXTS, exported, gte_folder  # noqa: F401 -- fixtures


@pytest.fixture(scope="module")
def encoder(exported):  # noqa: F811
    return load_query_encoder(exported[0], backend="openvino-fp32", threads=1)


@pytest.fixture(scope="module")
def original(gte_folder):  # noqa: F811
    return load_query_encoder(gte_folder)


@pytest.mark.thorough
def test_vectors_equal_those_of_the_original(encoder, original):
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    np.testing.assert_allclose(vectors, original.encode(TEXTS), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(encoder, name) == getattr(original, name)
    assert encoder.listing.model["identity"] == original.identity
    assert encoder.encode([]).shape == (0, encoder.dim) == original.encode([]).shape


def test_stored_prompts_go_before_queries(encoder, original):
    bare = encoder.encode(["头疼"], prompt_name="document")
    assert np.abs(bare - encoder.encode(["头疼"])).max() > 1e-3
    np.testing.assert_allclose(bare, original.encode(["头疼"], prompt_name="document"), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(["头疼"]), encoder.encode(["吃：头疼"], "document"), atol=1e-6)
    for loaded in (encoder, original):
        with pytest.raises(EncoderError, match="no prompt 'nix'; the model has query, document"):
            loaded.encode(["头疼"], prompt_name="nix")


def test_tokens_are_counted_before_they_are_cut(encoder, original):
    texts = ["头疼", "", "头疼" * 40]
    assert encoder.count_tokens(texts) == original.count_tokens(texts) == [6, 4, 84]
    assert encoder.max_length == 24
    assert original.count_tokens([]) == []


@pytest.mark.parametrize("variant", ["fp32", "bf16", "int8", "int8-calibrated"])
def test_a_vector_does_not_depend_on_its_batch(exported, variant):  # noqa: F811
    encoder = load_query_encoder(exported[0], backend=f"openvino-{variant}", threads=2)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    tolerance = 1e-5 if variant != "bf16" else 1e-2  # products of other shapes round bfloat16 elsewhere
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, atol=tolerance)
    with MicroBatcher(encoder) as batcher, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: batcher.submit([TEXTS[i % 6]]).result(20), range(48)))
    np.testing.assert_allclose(np.concatenate(answers), np.tile(alone, (8, 1)), atol=tolerance)


def test_torch_is_not_imported(exported):  # noqa: F811
    code = (
        "import sys\nfrom mar_st.online import load_query_encoder\n"
        f"print(load_query_encoder({str(exported[0])!r}).encode(['头疼']).shape)\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'openvino_telemetry'}\n"
        "print([name for name in heavy if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(1, 32)", "[]"]


@pytest.mark.thorough
def test_back_ends_are_chosen_and_missing_ones_refused(exported, gte_folder, tmp_path):  # noqa: F811
    out, listing = exported
    assert load_query_encoder(out).variant.name == listing.chosen
    assert load_query_encoder(out, backend="openvino").variant.name == listing.chosen
    with pytest.raises(EncoderError, match="no 'onnx'; it has openvino-fp32"):
        load_query_encoder(out, backend="onnx")
    with pytest.raises(EncoderError, match="mar export"):
        load_query_encoder(gte_folder, backend="onnx")
    with pytest.raises(MarError, match="There is no folder"):
        load_query_encoder(tmp_path / "nix")
    with pytest.raises(EncoderError, match="holds only one query encoder, not 'query-small'"):
        load_query_encoder(out, query="query-small")


def test_broken_folders_are_refused(exported, tmp_path):  # noqa: F811
    out, listing = exported
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    graph = copy / listing.variants[listing.chosen].graph
    graph.write_bytes(graph.read_bytes()[:-5])
    with pytest.raises(EncoderError, match=r"bytes; .* were written"):
        load_query_encoder(copy)
    graph.unlink()
    with pytest.raises(EncoderError, match="is missing"):
        load_query_encoder(copy)
    (copy / "export.json").write_text("{}", encoding="utf-8")
    with pytest.raises(EncoderError, match="export the model again"):
        load_query_encoder(copy)
    shutil.copy(out / graph.name, graph)
    content = json.loads((out / "export.json").read_text(encoding="utf-8"))
    (copy / "export.json").write_text(json.dumps(content | {"version": 2}), encoding="utf-8")
    with pytest.raises(EncoderError, match="not of version 1"):
        load_query_encoder(copy)


def test_each_variant_has_its_own_identity(exported):  # noqa: F811
    out, listing = exported
    identities = {load_query_encoder(out, backend=name, threads=1).identity for name in listing.variants}
    assert len(identities) == len(listing.variants)


def test_warm_up_changes_nothing(encoder):
    before = encoder.encode(TEXTS)
    encoder.warm_up((16, 48))
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)


def test_the_query_side_of_a_mar_loads_without_its_documents(tmp_path):
    folder = tmp_path / "mar"
    shutil.copytree(model_folder("mar-mini"), folder)
    whole = load_query_encoder(folder)
    for path in folder.glob("document_*"):
        shutil.rmtree(path)
    alone = load_query_encoder(folder)
    np.testing.assert_array_equal(alone.encode(["头疼"]), whole.encode(["头疼"]))
    assert whole.dim == 128
    assert whole.identity == alone.identity


def test_a_folder_without_samples_loads(exported, tmp_path):  # noqa: F811
    out, _ = exported
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    content = json.loads((copy / "export.json").read_text(encoding="utf-8"))
    for entry in content["files"].values():
        del entry["sample"]
    (copy / "export.json").write_text(json.dumps(content), encoding="utf-8")
    load_query_encoder(copy, threads=1).encode(TEXTS)


@pytest.mark.parametrize(("name", "value"), [("dim", 31), ("dim", 33), ("dim", 1), ("filler", 10**6)])
def test_a_setting_that_does_not_fit_the_files_is_one_clear_error(exported, tmp_path, name, value):  # noqa: F811
    out, _ = exported
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    content = json.loads((copy / "export.json").read_text(encoding="utf-8"))
    (copy / "export.json").write_text(json.dumps(content | {name: value}), encoding="utf-8")
    with pytest.raises(EncoderError) as error:
        load_query_encoder(copy, backend="openvino-fp32", threads=1).encode(["头疼"])
    assert "xport" in str(error.value)
    assert "\n" not in str(error.value)
