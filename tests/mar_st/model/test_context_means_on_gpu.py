"""Hidden states are averaged on a GPU if there is one, and give the embeddings of the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from mar_st.model.context_means import HiddenMeans
from mar_st.model.encoders import keep_layers, load_encoder
from tests.mar_st.gpu_helpers import texts, write_side

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("side", ["query", "document"])
def test_embeddings_match_the_cpu(gpu, tmp_path, side):
    transformer = load_encoder(str(write_side(tmp_path / side, side, torch.float32)), side)[0]
    last = transformer.model.config.num_hidden_layers - 1
    written = []
    for device in ("cpu", None):
        means = HiddenMeans.of(transformer, [last], texts(), pairs=20, device=device, show_progress=False)
        cut = copy.deepcopy(transformer)
        keep_layers([cut], [last])
        written.append(means.write(cut, last))
    assert {parameter.device.type for parameter in transformer.parameters()} == {"cpu"}
    on_cpu, by_default = (dict(module.named_parameters()) for module in written)
    assert on_cpu.keys() == by_default.keys()
    for name, expected in on_cpu.items():
        torch.testing.assert_close(by_default[name], expected, rtol=1e-3, atol=1e-4)
    loss = written[1](written[1].preprocess(texts()[:4]))["token_embeddings"].sum()
    loss.backward()  # the encoder can still be trained
