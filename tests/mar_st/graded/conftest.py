from __future__ import annotations

import pytest

from mar_st.graded.train import train_grader
from tests.mar_st.conftest import save_cross_encoder
from tests.mar_st.graded.graded_pairs import pairs, settings


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_cross_encoder(tmp_path_factory.mktemp("base") / "base", 1)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    return train_grader(settings(pairs(), base, tmp_path_factory.mktemp("out") / "judge"))
