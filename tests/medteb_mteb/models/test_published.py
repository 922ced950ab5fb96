from __future__ import annotations

import shutil

import mteb
import numpy as np
import pytest
from datasets import Dataset
from torch.utils.data import DataLoader

from medteb_mteb.models.encoders import load_medte


def texts(*lines):
    return DataLoader(Dataset.from_dict({"text": list(lines)}), batch_size=8)


@pytest.fixture
def cased(encoder_folder, tmp_path):
    """BERT with random weights and a tokenizer that knows two lower-case words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    shutil.copytree(encoder_folder.parent / "bert", tmp_path / "bert")
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "fever": 5, "heat": 6}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_medte_pools_by_the_mean_of_lower_cased_text(cased):
    model = load_medte(str(cased), device="cpu")
    shared = {"task_metadata": mteb.get_task("NFCorpus").metadata, "hf_split": "test", "hf_subset": "default"}
    upper, lower, other = (
        np.asarray(model.encode(texts(text), **shared))[0] for text in ("FEVER Heat", "fever heat", "tea cup")
    )
    assert np.allclose(upper, lower)
    assert not np.allclose(upper, other, atol=1e-3)
    assert [type(part).__name__ for part in model.model] == ["Transformer", "Pooling", "Normalize"]
    states = model.model[0](model.model.preprocess(["fever heat"]))["token_embeddings"][0].mean(dim=0)
    mean = states.detach().numpy()
    assert np.allclose(lower, mean / np.linalg.norm(mean), atol=1e-5)
