from __future__ import annotations

import random

import numpy as np
import torch

from mar_st.stages.checkpoints import kept_random_state


def test_random_states_are_restored_after_draws():
    def draw():
        # The global stream of numpy is meant.
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    expected = [draw(), draw()]
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    first = draw()
    with kept_random_state():
        assert draw() == expected[1]
    assert [first, draw()] == expected
