from __future__ import annotations

import pytest
from transformers import AutoModelForSequenceClassification

from mar_st.graded import train_grader
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.graded.graded_pairs import HOW, pairs


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "base"
    config = make_config("bert")
    config.num_labels = 1
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    make_tokenizer("query").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    return train_grader(pairs(), base, tmp_path_factory.mktemp("out") / "judge", HOW)
