from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st.model.encoders import load_encoder
from mar_st.spaces.students import given_encoder, save_student, student
from tests.mar_st.conftest import make_config, make_tokenizer


@pytest.mark.parametrize(("asked", "share"), [(False, 0.0), (True, 0.1)])
def test_a_given_student_has_no_dropout_unless_it_is_asked_for(tmp_path, asked, share):
    modules = load_encoder((make_config("bert"), make_tokenizer("query")), "query")
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "small"))
    model = given_encoder(str(tmp_path / "small"), max_length=32, dropout=asked)[0].model
    assert model.config.hidden_dropout_prob == share
    assert model.config.attention_probs_dropout_prob == share
    assert {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)} == {share}


def test_the_files_of_a_student_do_not_depend_on_texts_that_were_encoded_before(tmp_path):
    tokenizers = []
    for name in ("fresh", "used"):
        modules = load_encoder((make_config("bert"), make_tokenizer("query")), "query")
        model = student(modules, 16, prompt="", similarity="cosine", seed=1)
        if name == "used":
            model.encode_queries(["头疼怎么办"])
        (tmp_path / name).mkdir()
        save_student(model, tmp_path / name, {})
        (file,) = (tmp_path / name).rglob("tokenizer.json")
        tokenizers.append(file.read_bytes())
    assert tokenizers[0] == tokenizers[1]
