from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from mar_st.model.tokenizers import SPECIAL_TOKENS, train_tokenizer

TEXTS = [
    f"{who}{symptom}怎么办，吃什么药？每日{dose}mg"
    for who in ("小孩", "老人", "孕妇")
    for symptom in ("头疼", "发热", "高血压", "咳嗽")
    for dose in (5, 10, 250)
]


def _train(role="query", **settings):
    return train_tokenizer(TEXTS, role, **{"vocab_size": 120, **settings})


@pytest.mark.parametrize("role", ["query", "document"])
def test_the_same_texts_give_the_same_tokenizer(role):
    first, second = _train(role), _train(role)
    assert first.get_vocab() == second.get_vocab()
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()
    assert first(TEXTS)["input_ids"] == second(TEXTS)["input_ids"]


def test_text_is_normalised():
    tokenizer = _train()
    assert tokenizer("２５０ＭＧ")["input_ids"] == tokenizer("250mg")["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer("250mg")["input_ids"]


def test_digits_and_punctuation_are_single_tokens():
    tokenizer = _train(vocab_size=400, max_token_length=8)
    longer = [token for token in set(tokenizer.get_vocab()) - set(SPECIAL_TOKENS) if len(token) > 1]
    assert longer
    assert not [token for token in longer if any(c.isdigit() or c in "，？?," for c in token)]


@pytest.mark.parametrize(("limit", "longest"), [(2, 2), (4, 4)])
def test_tokens_have_at_most_the_given_characters(limit, longest):
    tokenizer = _train(vocab_size=400, max_token_length=limit)
    vocabulary = set(tokenizer.get_vocab()) - set(SPECIAL_TOKENS)
    assert max(len(token) for token in vocabulary) == longest
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(TEXTS[0])["input_ids"])
    assert max(len(token) for token in tokens[1:-1]) == longest


def test_vocabulary_is_bounded_but_holds_every_character():
    characters = {character for text in TEXTS for character in text} - {"，", "？"} | {",", "?"}
    for size in (len(characters) + 10, len(characters)):
        tokenizer = _train(vocab_size=size)
        assert characters <= set(tokenizer.get_vocab())
        assert len(tokenizer) == max(size, len(characters) + len(SPECIAL_TOKENS))
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("role", ["query", "document"])
def test_saving_and_loading_gives_the_same_ids(role, tmp_path):
    tokenizer = _train(role, max_length=10)
    tokenizer.save_pretrained(str(tmp_path))
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    texts = [*TEXTS, "龘 头疼，250ＭＧ", ""]
    assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    batch = loaded(texts, padding=True, truncation=True)
    assert {len(ids) for ids in batch["input_ids"]} == {10}
    assert loaded.pad_token_id == 0
