"""Make the model folders that the engines of `benchmarks/peers.py` load, once for each engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Names of the tokenizer's special tokens in `tokenizer_config.json`.
_SPECIAL = ("bos_token", "eos_token", "sep_token", "cls_token", "unk_token", "pad_token", "mask_token")

#: Documents beyond the relevant ones in a task cut by `--limit`.
MAX_OTHER_DOCUMENTS = 200


def made(folder: Path, make: Callable[[Path], Any]) -> Path:
    """Return a folder; where it is not there, `make` writes it aside and it is moved into place."""
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part)
        part.rename(folder)
    return folder


def write_weights(model: str, out: Path) -> None:
    """Write a model folder that sentence-transformers 3 to 6 on transformers 4 and 5 load, in float32.

    Raises:
        SystemExit: The model is not a transformer with mean pooling and normalised vectors.
    """
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(model, device="cpu").float()
    kinds = [type(module).__name__ for module in loaded]
    if kinds != ["Transformer", "Pooling", "Normalize"] or loaded[1].pooling_mode != "mean":
        raise SystemExit(
            "--model is to be Transformer, mean Pooling and Normalize, which every engine here computes; "
            f"{model} is {', '.join(kinds)}."
        )
    transformer: Any = loaded[0]
    transformer.model.save_pretrained(out)
    _write_shared(loaded, out)
    listing = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(zip(("", "1_Pooling", "2_Normalize"), kinds, strict=True))
    ]
    _write(out / "modules.json", listing)


def _write_shared(loaded: Any, out: Path) -> None:
    """Write everything but the weights: settings, tokenizer, pooling."""
    transformer = loaded[0]
    tokenizer = transformer.tokenizer
    (out / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    special = {name: getattr(tokenizer, name) for name in _SPECIAL if getattr(tokenizer, name) is not None}
    length = int(transformer.max_seq_length)
    _write(out / "special_tokens_map.json", special)
    _write(
        out / "tokenizer_config.json",
        {**special, "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length,
         "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]},
    )  # fmt: skip
    config = transformer.model.config.to_dict() | {"dtype": "float32", "torch_dtype": "float32"}
    config["architectures"] = [type(transformer.model).__name__]
    _write(out / "config.json", config)
    _write(out / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    _write(
        out / "config_sentence_transformers.json",
        {"prompts": loaded.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    (out / "1_Pooling").mkdir()
    width = int(loaded.get_embedding_dimension())
    _write(
        out / "1_Pooling" / "config.json",
        {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
    )


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def _copy_without_weights(weights: Path, out: Path) -> None:
    shutil.copytree(weights, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))


def write_onnx(weights: Path, out: Path) -> None:
    """Write the graph of a folder of `write_weights` as `onnx/model.onnx`, with the vectors of its tokens."""
    import torch
    from transformers import AutoModel

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(weights, dtype=torch.float32).eval()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state

    _copy_without_weights(weights, out)
    (out / "onnx").mkdir()
    ids = torch.full((2, 7), 5)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    names = ["input_ids", "attention_mask", "token_type_ids"]
    batch, tokens = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("tokens", min=1, max=512)
    torch.onnx.export(
        Tokens().eval(), (ids, mask, torch.zeros_like(ids)), str(out / "onnx" / "model.onnx"),
        input_names=names, output_names=["last_hidden_state"], dynamo=True, external_data=False,
        dynamic_shapes={name: {0: batch, 1: tokens} for name in names}, verbose=False,
    )  # fmt: skip


def write_onnx_int8(onnx: Path, out: Path) -> None:
    """Write the graph with int8 weights, ranges of activations found while it computes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    shutil.copytree(onnx, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.onnx"))
    quantize_dynamic(
        onnx / "onnx" / "model.onnx", out / "onnx" / "model.onnx", weight_type=QuantType.QInt8,
        per_channel=True, op_types_to_quantize=["MatMul", "Gemm", "Gather"],
    )  # fmt: skip


def write_openvino(onnx: Path, out: Path) -> None:
    """Write the graph for OpenVINO as `openvino/openvino_model.xml`, in float32."""
    from mar_st.online.encoders import optional

    openvino = optional("openvino", "export")
    shutil.copytree(onnx, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("onnx"))
    (out / "openvino").mkdir()
    graph = openvino.convert_model(onnx / "onnx" / "model.onnx")
    openvino.save_model(graph, out / "openvino" / "openvino_model.xml", compress_to_fp16=False)


def export_forms(model: str, out: Path, rung: str | None, forms: Sequence[str]) -> None:
    """Write what `mar export` makes of a query encoder; a lookup encoder is written for numpy."""
    from mar_st.export import ExportSettings, export

    options = {} if is_lookup(model, rung) else {"format": list(forms)}
    export(ExportSettings(model=model, out=out, query_encoder=rung, **options))


def is_lookup(model: str, rung: str | None) -> bool:
    """Tells whether a query encoder of a MAR has no transformer."""
    from mar_st.modules.layout import ROUTER_FILE, saved_chain

    root = Path(model)
    return (root / ROUTER_FILE).is_file() and saved_chain(root, rung or "query")[0].type.endswith(
        ".LookupEncoder"
    )


def rungs(model: str) -> list[str]:
    """Names of the query encoders of a MAR."""
    from mar_st.model.family import query_encoders

    return query_encoders(model)


def unpacked(model: str) -> str:
    """Return the folder of a model: of a name such as `mar-zh`, a packed folder, or a folder as it is."""
    from mar_st.model.names import model_source
    from mar_st.model.packed import MANIFEST, unpacked_folder

    if (Path(model) / MANIFEST).is_file():
        return str(unpacked_folder(model, Path(model).name))
    return model_source(model)


def write_reference(model: str, rung: str | None, texts: list[str], threads: int, out: Path) -> None:
    """Write the vectors of queries as sentence-transformers computes them in float32, in batches."""
    from mar_st.online.torch_encoder import TorchEncoder

    encoder = TorchEncoder.open(model, threads=threads, query=rung)
    encoder.model.float()
    np.save(out / "queries.npy", encoder.encode(texts))


def write_documents(model: str, corpus: Path, threads: int, out: Path) -> None:
    """Encode the documents of a task; a run that was killed is resumed."""
    from mar_st.encode.encoding import encode_corpus

    encode_corpus(model, corpus, out, threads=threads)


def judge(task: str, documents: Path) -> Any:
    """Return a task with the vectors of its documents, a `loss_task.LossTask`; cosine."""
    from loss_task import open_judge

    return open_judge(task, "", vectors=documents)


def read_task(task: str) -> dict[str, Any]:
    """Return `texts` (queries in order), `queries` and `documents` (how many), and the `digest` of a task."""
    from mar_st.evaluation.tasks import Task, load_task

    data = load_task(Task(name="task", path=task))
    texts = list(data.queries.values())
    return {"texts": texts, "queries": len(texts), "documents": len(data.corpus), "digest": data.digest}


def limited_task(task: str, limit: int, out: Path) -> None:
    """Write the first queries of a task with their relevant documents and `MAX_OTHER_DOCUMENTS` more."""
    from mar_st.evaluation.tasks import Task, load_task

    data = load_task(Task(name="task", path=task))
    asked = list(data.queries)[:limit]
    judged = {key: data.qrels[key] for key in asked if key in data.qrels}
    needed = {name for grades in judged.values() for name in grades}
    others = [name for name in data.corpus if name not in needed][:MAX_OTHER_DOCUMENTS]
    (out / "qrels").mkdir()
    lines = {
        "queries.jsonl": [{"_id": key, "text": data.queries[key]} for key in asked],
        "corpus.jsonl": [{"_id": key, "text": data.corpus[key]} for key in [*sorted(needed), *others]],
    }
    for name, rows in lines.items():
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / name).write_text(content, encoding="utf-8")
    table = [f"{key}\t{name}\t{grade}" for key, row in judged.items() for name, grade in row.items()]
    (out / "qrels" / "test.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *table]) + "\n", encoding="utf-8"
    )


def write_evaluation(folder: Path, *, queries: int = 20, documents: int = 100) -> Path:
    """Write the first queries of the packaged edition with their documents and some more."""
    from mar_st.data.rows import locate

    root = locate("package:medteb_mteb/MedTEBRetrieval")
    query_lines = (root / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:queries]
    names = {json.loads(line)["_id"] for line in query_lines}
    header, *rows = (root / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if row.split("\t")[0] in names]
    needed = {row.split("\t")[1] for row in kept}
    lines = (root / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    corpus = [line for i, line in enumerate(lines) if i < documents or json.loads(line)["_id"] in needed]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("corpus.jsonl", corpus),
        ("queries.jsonl", query_lines),
        ("qrels/test.tsv", [header, *kept]),
    ):
        (folder / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    return folder


def write_tiny(out: Path) -> None:
    """Write a small random encoder (`model`), a small MAR with three query encoders (`mar`), and a task."""
    import torch
    from query import tokenizer_of
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Router
    from transformers import AutoConfig

    from mar_st import MAR
    from mar_st.lookup.fit import fit_lookup
    from mar_st.model.encoders import load_encoder

    write_evaluation(out / "task", queries=12, documents=40)
    rows = [json.loads(line) for line in (out / "task" / "queries.jsonl").open(encoding="utf-8")]
    texts = [row["text"] for row in rows]
    prompts = {"query": "query: ", "document": "passage: "}
    tokenizer = tokenizer_of([*texts, *prompts.values()], 600)

    def encoder(layers: int) -> list[Any]:
        torch.manual_seed(layers)
        config = AutoConfig.for_model(
            "bert", vocab_size=600, hidden_size=64, num_hidden_layers=layers, num_attention_heads=4,
            intermediate_size=128, pad_token_id=1,
        )  # fmt: skip
        return [*load_encoder((config, tokenizer), "query", pooling="mean"), Normalize()]

    SentenceTransformer(modules=encoder(3), prompts=prompts, device="cpu").save(str(out / "model"))
    document = encoder(2)
    teacher = SentenceTransformer(modules=document, prompts=prompts, device="cpu")
    twice = [*texts, *texts]  # a feature must be in two texts
    lookup = fit_lookup(twice, teacher.encode_query(twice), ridge=1.0)
    routes = {"query": encoder(2), "query-1": encoder(1), "query-lookup": [lookup, Normalize()],
              "document": document}  # fmt: skip
    model = MAR(modules=[Router(routes, default_route="query")], prompts=prompts, device="cpu")
    model.save_pretrained(str(out / "mar"), create_model_card=False)
