"""Inputs of `flagship.py`: the two encoders, the two-folder form as it is published, texts."""

from __future__ import annotations

import itertools
import json
import shutil
from typing import TYPE_CHECKING, Any

import yaml
from published_shapes import GTE, QWEN_4B, packaged_texts, write_backbone

if TYPE_CHECKING:
    from pathlib import Path

#: Rank and scale of the adapter, as MAR's recipe has them.
LORA = {"r": 32, "lora_alpha": 64}
#: Its matrices are drawn with this deviation: an update of about a hundredth of the weights.
DEVIATION = 0.002
#: Rows of training data.
ROWS = 8

RECIPE = "mar-0.3b-4b"


def write_backbones(root: Path, *, tiny: bool) -> None:
    """The 305M query encoder and Qwen3-4B, in bfloat16, with random weights."""
    texts = packaged_texts()
    for side, name in (("query", GTE), ("document", QWEN_4B)):
        write_backbone(name, root / side, texts=texts, tiny=tiny)


def write_published(root: Path, backbones: Path) -> Path:
    """The two folders of the published form: packed `new` weights, and an adapter that names its base."""
    if root.is_dir():
        return root
    part = root.with_name(root.name + ".part")
    _write_new(backbones / "query", part / "query_encoder")
    _write_adapter(backbones / "document", part / "document_encoder")
    return part.replace(root)


def _write_new(source: Path, folder: Path) -> None:
    """A `gte` folder as `new-impl` stores it: q, k, v in one matrix, up and gate in one, names of its own."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    weights = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    stored: dict[str, Any] = {}
    for index in range(config["num_hidden_layers"]):
        old, new = f"layers.{index}.", f"encoder.layer.{index}."
        for kind in ("weight", "bias"):
            packed = [weights.pop(f"{old}self_attn.{part}_proj.{kind}") for part in "qkv"]
            stored[f"{new}attention.qkv_proj.{kind}"] = torch.cat(packed)
        packed = [weights.pop(f"{old}mlp.{part}_proj.weight") for part in ("up", "gate")]
        stored[f"{new}mlp.up_gate_proj.weight"] = torch.cat(packed)
        for here, there in (
            ("self_attn.o_proj", "attention.o_proj"),
            ("post_attention_layernorm", "attn_ln"),
            ("post_mlp_layernorm", "mlp_ln"),
            ("mlp.down_proj", "mlp.down_proj"),
        ):
            for kind in ("weight", "bias"):
                stored[f"{new}{there}.{kind}"] = weights.pop(f"{old}{here}.{kind}")
    save_file(stored | weights, folder / "model.safetensors", metadata={"format": "pt"})
    theta = config.pop("rope_parameters")["rope_theta"]
    config |= {
        "model_type": "new",
        "architectures": ["NewModel"],
        "auto_map": {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"},
        "rope_theta": theta,
        "rope_scaling": None,
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def _write_adapter(base: Path, folder: Path) -> None:
    """A PEFT folder of LoRA on every linear layer of the base."""
    import torch
    from peft import LoraConfig
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    from mar_st.model.adapters import LORA_TARGETS
    from mar_st.planning.backbones import meta_model, source_shape

    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, layer in meta_model(source_shape(str(base))).named_modules():
        if name.rpartition(".")[2] in LORA_TARGETS:
            out, width = layer.weight.shape
            for half, size in (("lora_A", (LORA["r"], width)), ("lora_B", (out, LORA["r"]))):
                drawn = torch.empty(size).normal_(0, DEVIATION**0.5 / LORA["r"] ** 0.25, generator=generator)
                tensors[f"base_model.model.{name}.{half}.weight"] = drawn
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    LoraConfig(
        base_model_name_or_path=str(base.resolve()),
        task_type="FEATURE_EXTRACTION",
        target_modules=list(LORA_TARGETS),
        inference_mode=True,
        **LORA,
    ).save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)


def write_corpus(path: Path, documents: int, characters: int) -> Path:
    """The first documents of the packaged edition, each cut to so many characters."""
    from mar_st.data import locate

    corpus = locate("package:medteb_mteb/MedTEBRetrieval") / "corpus.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with corpus.open(encoding="utf-8") as lines, path.open("w", encoding="utf-8") as out:
        for line in itertools.islice(lines, documents):
            row = json.loads(line)
            row = {"_id": row["_id"], "title": "", "text": row["text"][:characters]}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def write_pairs(root: Path, pairs: int | None) -> None:
    """An edition of `MedTEBSTS` with the first pairs of the packaged one, or none, where all are wanted."""
    from medteb_mteb.commands.editions import WriteSettings, write
    from medteb_mteb.editions import find_edition

    folder = root / "MedTEBSTS"
    shutil.rmtree(folder, ignore_errors=True)
    if pairs is None:
        return
    folder.mkdir(parents=True)
    packaged = find_edition("MedTEBSTS")
    lines = (packaged.path / "test.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "test.jsonl").write_text("".join(lines[:pairs]), encoding="utf-8")
    named = {"edition": f"first-{pairs}", "version": packaged.version, "licence": packaged.licence}
    write(WriteSettings(folder=folder, task="MedTEBSTS", **named))


def write_recipe(root: Path, backbones: Path, *, tiny: bool) -> Path:
    """The published recipe from its alignment on, on these encoders, with two steps of each stage."""
    texts = packaged_texts()
    files = {
        "triples": [
            {"query": texts[-1 - row], "positives": [texts[row][:20]], "negatives": [texts[ROWS + row][:20]]}
            for row in range(ROWS)
        ],
        "queries": [{"text": text} for text in texts[-ROWS:]],
        "documents": [{"text": text[:20]} for text in texts[:ROWS]],
    }
    root.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (root / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    few = {"max_steps": 2, "batch_size": 4, "mini_batch_size": 2, "gradient_checkpointing": True}
    kept = {"finetune": "triples", "align-queries": "queries", "align-documents": "documents"}
    left_out = ("pretrain", "unsupervised", "retrieval", "cmedqa", "sts")
    content = {
        "extends": RECIPE,
        "name": "flagship",
        "query": {"source": str((backbones / "query").resolve()), "revision": None},
        "document": {"source": str((backbones / "document").resolve())},
        "data": {
            **dict.fromkeys(left_out),
            **{name: {"path": str((root / f"{file}.jsonl").resolve())} for name, file in kept.items()},
        },
        "stages": {
            **dict.fromkeys(("retromae", "unsupervised", "query-init", "document-init")),
            "align": few,
            "joint": {**few, "data": ["finetune"], "negatives": 1, "mini_batch_size": None},
        },
        "evaluation": None,
        **({"dim": 32} if tiny else {}),
    }
    path = root / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return path
