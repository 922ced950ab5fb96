"""Training speed measured on an encoder with random weights."""

from __future__ import annotations

import pytest
import torch

from mar_st.kernels.cpu_attention import FLOAT32_ATTENTION
from mar_st.planning.backbones import shape_of
from mar_st.planning.costs import Training, training_flops
from mar_st.recipes.load import load_recipe
from mar_st.rehearsal import calibrate
from mar_st.rehearsal.calibrate import measure
from mar_st.rehearsal.tiny import shrink

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="measures the CPU")


@pytest.fixture
def shape():
    recipe = shrink(load_recipe("mar-mini"))
    return shape_of(recipe.document, recipe.document)


@pytest.fixture
def benches(monkeypatch):
    """The benches that were made; each pass takes a hundredth of a second by their clock."""
    made = []

    class Bench(calibrate._Bench):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.rows, self.attention = [], set()
            made.append(self)

        def _pass(self, rows):
            super()._pass(rows)
            self.rows.append(rows)
            self.attention.add(self.model.config._attn_implementation)
            return 0.01 * rows

    monkeypatch.setattr(calibrate, "_Bench", Bench)
    return made


def test_rows_are_doubled_until_a_pass_takes_a_quarter_of_a_second(shape, benches):
    speed = measure(shape, Training("full"), 8, seconds=0)
    (bench,) = benches
    assert bench.rows == [2, 2, 4, 8, 16, 32]
    assert speed.flops == pytest.approx(training_flops(shape, 32, 8, Training("full")) / 0.32)
    assert speed.optimizer > 0


def test_frozen_encoders_have_no_optimiser_step(shape, benches):
    speed = measure(shape, Training("frozen"), 8, seconds=0)
    assert speed.optimizer == 0
    assert benches[0].optimizer is None


@pytest.mark.parametrize(("bf16", "attention"), [(True, FLOAT32_ATTENTION), (False, "sdpa")])
def test_attention_is_that_of_training(shape, benches, bf16, attention):
    measure(shape, Training("full", bf16=bf16), 8, seconds=0)
    assert benches[0].attention == {attention}
    assert benches[0].model.config._attn_implementation == "sdpa"
