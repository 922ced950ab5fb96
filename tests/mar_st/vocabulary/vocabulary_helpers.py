"""Small tokenizers of every kind, trained on the spot, and random encoders of the families that use them."""

from __future__ import annotations

import json

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

#: Texts that the cut vocabulary has to cover.
OURS = [
    "感冒发烧吃什么药，多喝水多休息", "高血压患者应低盐饮食，规律服药", "糖尿病需要控制饮食和体重",
    "fever and cough in children", "low salt diet for high blood pressure", "剂量 20 mg, 每天 3 次",
]  # fmt: skip
#: Texts that it need not cover.
THEIRS = [
    "股票市场今天大幅下跌，投资者担忧", "足球比赛昨晚进行了加时", "новости сегодня на рынке акций",
    "the quarterly earnings of the company", "compilers translate programs", "주식 시장 뉴스",
]  # fmt: skip
#: In no training text: unseen characters, emoji, nothing at all, a very long word.
STRANGE = ["龘靐齉", "🙂 ok", "", "x" * 400, "\u0000\n\t", "ÀÉ"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def _general(backend, **names):
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **names)


def _template(backend, start, end):
    ids = [(token, backend.token_to_id(token)) for token in (start, end) if token]
    single = " ".join(part for part in (start, "$A", end) if part)
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)


def unigram(special=SPECIAL):
    """As XLM-RoBERTa's: Unigram with spaces marked, `<mask>` behind the pieces."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=420, special_tokens=list(special), unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator((OURS + THEIRS) * 4, trainer)
    _template(backend, "<s>", "</s>")
    tokenizer = _general(
        backend, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>", unk_token="<unk>",
        pad_token="<pad>",
    )  # fmt: skip
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    return tokenizer


def byte_level():
    """As Qwen's: byte-level BPE whose special tokens stand behind the pieces."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator((OURS + THEIRS) * 4, trainer)
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    _template(backend, "", "<|endoftext|>")
    return _general(backend, eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def byte_fallback():
    """As Gemma's: BPE over characters, whole texts as words, bytes for unknown characters."""
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>", *bytes_of], show_progress=False
    )
    backend.train_from_iterator((OURS + THEIRS) * 4, trainer)
    parsed = json.loads(backend.to_str())
    parsed["added_tokens"] = [token for token in parsed["added_tokens"] if token["id"] < 4]
    backend = Tokenizer.from_str(json.dumps(parsed))
    _template(backend, "<bos>", "<eos>")
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return _general(backend, padding_side="left", **names)


def word_piece():
    """As BERT's: pieces of words, a placeholder among the special tokens."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        (OURS + THEIRS) * 4,
        trainers.WordPieceTrainer(vocab_size=420, special_tokens=special, show_progress=False),
    )
    backend.post_processor = processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3))
    return _general(
        backend, **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    )


TOKENIZERS = {
    "unigram": unigram, "byte_level": byte_level, "byte_fallback": byte_fallback, "word_piece": word_piece,
}  # fmt: skip
#: Model families with the kind of tokenizer that they use.
FAMILIES = {
    "bert": "word_piece", "xlm-roberta": "unigram", "gte": "unigram", "modernbert": "byte_level",
    "qwen3": "byte_level", "gemma": "byte_fallback", "llama": "byte_fallback", "gpt_neox": "byte_level",
}  # fmt: skip
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 128,
}  # fmt: skip


def encoder_folder(path, family="xlm-roberta", tokenizer=None, dtype=torch.float32, loader=AutoModel):
    """A checkpoint of random weights; its embedding has some rows more than the tokenizer has pieces."""
    tokenizer = tokenizer or TOKENIZERS[FAMILIES[family]]()
    ids = {
        key: getattr(tokenizer, key)
        for key in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    }
    more = {"num_key_value_heads": 2, "head_dim": 8} if family in ("qwen3", "gemma") else {}
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer) + 7, initializer_range=0.2, **ids, **SIZES, **more
    )
    loader.from_config(config).to(dtype).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
