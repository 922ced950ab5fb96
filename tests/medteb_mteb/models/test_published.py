from __future__ import annotations

import shutil

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.types import PromptType
from torch.utils.data import DataLoader

from medteb_mteb.models.encoders import PaperBMRetriever, load_medte
from medteb_mteb.tasks.english import english_tasks

#: Tasks whose answers are MedQuAD's; both papers train on it.
MEDQUAD = {"MedQuADLiveQARetrieval", "MedicalQARetrieval", "retrieval_medquad_dataset"}
SIZES = {"410m": "BMRetriever-410M", "1b": "BMRetriever-1B", "2b": "BMRetriever-2B", "7b": "BMRetriever-7B"}


def texts(*lines):
    return DataLoader(Dataset.from_dict({"text": list(lines)}), batch_size=8)


@pytest.fixture(scope="module")
def pythia(tmp_path_factory):
    """A folder of BMRetriever's kind: GPT-NeoX with random weights, without a pooling configuration."""
    import torch
    from tests.conftest import save_tokenizer
    from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXModel

    folder = tmp_path_factory.mktemp("pythia")
    size = save_tokenizer(folder)
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    GPTNeoXModel(config).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = "[SEP]"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("size", SIZES)
def test_variants_of_bmretriever_are_mtebs_entries_with_the_papers_scoring(size):
    theirs, ours = (
        mteb.get_model_meta(f"BMRetriever/{SIZES[size]}"),
        mteb.get_model_meta(f"bmretriever-{size}-dot"),
    )
    assert ours.name == f"medteb/bmretriever-{size}-dot"
    assert (theirs.similarity_fn_name, ours.similarity_fn_name) == ("cosine", "dot")
    assert (ours.revision, ours.n_parameters, ours.adapted_from) == (
        theirs.revision,
        theirs.n_parameters,
        theirs.name,
    )
    assert ours.max_tokens == 512
    assert ours.training_datasets == {*theirs.training_datasets, "HotpotQA", *MEDQUAD}


def test_a_variant_scores_by_dot_product_and_sts_by_cosine(pythia):
    import torch

    model = PaperBMRetriever("medteb/bmretriever-410m-dot", device="cpu", hub=str(pythia))
    retrieval, sts = mteb.get_task("NFCorpus").metadata, mteb.get_task("BIOSSES").metadata
    shared = {"hf_split": "test", "hf_subset": "default"}
    asked = model.encode(
        texts("what is fever"), task_metadata=retrieval, prompt_type=PromptType.query, **shared
    )
    documents = texts("fever is heat", "x " * 2000, "y")
    vectors = model.encode(documents, task_metadata=retrieval, prompt_type=PromptType.document, **shared)
    assert vectors.shape == (3, 32)
    assert np.allclose(model.similarity(asked, vectors), asked @ vectors.T, atol=1e-4)
    # One text alone, without padding: the state of the end token after the prompt and the text.
    tokens = model.tokenizer("Represent this passage\npassage: y")["input_ids"]
    tokens = [
        *(tokens[:-1] if tokens[-1] == model.tokenizer.eos_token_id else tokens),
        model.tokenizer.eos_token_id,
    ]
    with torch.inference_mode():
        state = model.model(input_ids=torch.tensor([tokens])).last_hidden_state[0, -1].numpy()
    assert np.allclose(vectors[2], state, atol=1e-5)
    assert abs(float(np.linalg.norm(state)) - 1) > 0.01  # not normalised
    cut = model._vectors(["Represent this passage\npassage: " + "x " * 1000], 1)
    assert np.allclose(cut, vectors[1], atol=1e-5)  # both are cut to 511 tokens and the end token
    pair = model.encode(texts("a b", "c d"), task_metadata=sts, **shared)
    assert np.allclose(np.diag(np.asarray(model.similarity(pair, pair))), 1, atol=1e-4)
    assert np.allclose(np.asarray(model.similarity_pairwise(pair, pair)), 1, atol=1e-4)


def test_medte_declares_what_it_was_trained_on():
    meta = mteb.get_model_meta("MohammadKhodadad/MedTE-cl15-step-8000")
    english = {name for name in meta.training_datasets if name in english_tasks()}
    assert meta.training_datasets - english == {"TRECCOVID", "NFCorpus", "CUREv1", *MEDQUAD} - english
    assert {english_tasks()[name].source for name in english} == {
        "ClinicalTrials.gov", "MIMIC-IV", "MedMCQA", "MedQA", "MedQuAD", "PubMed", "bioRxiv", "medRxiv",
    }  # fmt: skip
    assert len(english) == 37
    assert all(mteb.get_task(name).metadata.name == name for name in meta.training_datasets)
    medical = [task.metadata.name for task in mteb.get_benchmark("MTEB(Medical, v1)").tasks]
    assert not meta.is_zero_shot_on(medical)
    assert not meta.is_zero_shot_on(["retrieval_biorxiv_dataset"])
    assert meta.is_zero_shot_on(["classification_wiki_syndromes_dataset"])


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
