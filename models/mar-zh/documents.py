"""Steps in making the model.

usage: documents.py start SOURCE OUT           bge-small-zh-v1.5 in float32; its tokenizer lower-cases
       documents.py finish MODEL OUT           MODEL for texts of up to 256 tokens, as it is after packing
       documents.py package LADDER HERE        the packed model, from the result of `mar align`
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from mar_st.model.packed import unpack

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tools are not installed
from tools.pack import pack

#: Training reads 112 tokens; longer documents are embedded better whole than cut.
MAX_LENGTH = 256


def start(source: Path, out: Path) -> None:
    """Write the base model in float32; its vocabulary has no capital letters."""
    shutil.copytree(source, out, copy_function=shutil.copyfile)
    out.chmod(0o755)
    change(out / "tokenizer_config.json", do_lower_case=True)
    content = json.loads((out / "tokenizer.json").read_text("utf-8"))
    content["normalizer"]["lowercase"] = True
    write(out / "tokenizer.json", content)
    as_float32(out)


def finish(model: Path, out: Path) -> None:
    """Write the document encoder with the weights that it has after packing, which queries are aligned to."""
    packed = out.with_name(f"{out.name}-packed")
    pack(model, packed)
    unpack(packed, out)
    shutil.rmtree(packed)
    as_float32(out)
    change(out / "tokenizer_config.json", model_max_length=MAX_LENGTH)
    change(out / "sentence_bert_config.json", max_seq_length=MAX_LENGTH)
    content = json.loads((out / "tokenizer.json").read_text("utf-8"))
    content["truncation"] = None
    write(out / "tokenizer.json", content)


def package(ladder: Path, here: Path) -> None:
    """Write the packed model of the package."""
    for name in ("ladder.json", "space.*", "*.png", "*.jsonl"):
        for record in ladder.glob(name):
            record.unlink()
    put_prompt(ladder)
    shutil.copy(here / "card.md", ladder / "README.md")
    pack(ladder, here / "src" / "mar_zh" / "model")


def put_prompt(ladder: Path) -> None:
    """Let the tokenizer of the full query encoder put the prompt before each query.

    The small query encoders learnt the vectors of queries with the prompt from queries without it, so the
    prompt cannot be one of the whole model.
    """
    config = ladder.parent / "documents" / "config_sentence_transformers.json"
    text = json.loads(config.read_text("utf-8"))["prompts"]["query"]
    path = ladder / "query_0_Transformer" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    prompt = Tokenizer.from_str(json.dumps(content)).encode(text, add_special_tokens=False)
    template = content["post_processor"]
    template["single"].insert(1, {"SpecialToken": {"id": "prompt", "type_id": 0}})
    template["special_tokens"]["prompt"] = {"id": "prompt", "ids": prompt.ids, "tokens": prompt.tokens}
    write(path, content)


def as_float32(folder: Path) -> None:
    """Write the weights of a model in float32."""
    weights = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder / "config.json", dtype="float32")


def change(path: Path, **settings: object) -> None:
    """Change settings in a JSON file."""
    write(path, json.loads(path.read_text("utf-8")) | settings)


def write(path: Path, content: object) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    {"start": start, "finish": finish, "package": package}[sys.argv[1]](*map(Path, sys.argv[2:]))
