"""A language model of a few kilobytes that gives every passage the same grade, to try a real server with.

    python examples/constant_model.py /tmp/constant --grade B
    transformers serve /tmp/constant --port 8010

It is a Llama whose layers add nothing: after the mark of its turn it says one token, the answer, and after
this the end. So address, settings and server can be tried from end to end, on a laptop and within a minute,
before a model of 20 GB is fetched. See examples/local_judge.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END, TURN = "<|end|>", "<|assistant|>"
TEMPLATE = "{% for one in messages %}" + "{{ one.content }}" + END + "{% endfor %}" + TURN


def tokenizer(answer: str) -> PreTrainedTokenizerFast:
    """Bytes, the marks, and the answer as one token."""
    known = {symbol: number for number, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    made = Tokenizer(BPE(known, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.decoder = Decoder()
    fast_tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END)
    fast_tokenizer.add_special_tokens({"additional_special_tokens": [TURN]})
    fast_tokenizer.add_tokens([answer])
    fast_tokenizer.chat_template = TEMPLATE
    return fast_tokenizer


def model(turn: int, answer: int, end: int, size: int) -> LlamaForCausalLM:
    """A Llama that says `answer` after `turn`, and `end` after `answer`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=end,
    )
    made = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in made.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        states = made.model.embed_tokens.weight
        torch.nn.init.orthogonal_(states[:32])
        states[turn], states[answer] = torch.eye(32)[0], torch.eye(32)[1]
        made.lm_head.weight.zero_()
        made.lm_head.weight[answer], made.lm_head.weight[end] = torch.eye(32)[0], torch.eye(32)[1]
    made.generation_config = GenerationConfig(
        eos_token_id=end, pad_token_id=end, max_new_tokens=16, do_sample=False
    )
    return made


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(description="A model that gives every passage the same grade.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--grade", choices=list("SABCD"), default="B")
    options = parser.parse_args(arguments)
    answer = f'{{"Passage-0": "{options.grade}"}}'
    words = tokenizer(answer)
    turn, said, end = (words.convert_tokens_to_ids(token) for token in (TURN, answer, END))
    model(turn, said, end, len(words)).save_pretrained(options.folder)
    words.save_pretrained(options.folder)
    print(f"{options.folder} says {answer}")


if __name__ == "__main__":
    main()
