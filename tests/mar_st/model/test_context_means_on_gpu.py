"""Hidden states are averaged on a GPU if there is one, and give those of the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from mar_st.model.context_means import HiddenMeans
from mar_st.model.encoders import keep_layers, load_encoder
from tests.mar_st.gpu_helpers import texts, write_side

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("side", ["query", "document"])
def test_hidden_states_are_those_of_the_cpu(gpu, tmp_path, side):
    transformer = load_encoder(str(write_side(tmp_path / side, side, torch.float32)), side)[0]
    last = transformer.model.config.num_hidden_layers - 1
    on_cpu, by_default = (
        HiddenMeans.of(transformer, [last], texts(), pairs=20, device=device, show_progress=False)
        for device in ("cpu", None)
    )
    assert {parameter.device.type for parameter in transformer.parameters()} == {"cpu"}
    torch.testing.assert_close(by_default.sums, on_cpu.sums, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(by_default.pairs, on_cpu.pairs)
    for group, rows in on_cpu.rows.items():
        assert torch.equal(torch.cat(by_default.rows[group]), torch.cat(rows))
    cut = copy.deepcopy(transformer)
    keep_layers([cut], [last])
    written = by_default.write(cut, last)
    assert {parameter.device.type for parameter in written.parameters()} == {"cpu"}
    output = written(written.preprocess(texts()[:4]))["token_embeddings"]
    assert torch.isfinite(output).all()
    output.sum().backward()  # the encoder can still be trained
