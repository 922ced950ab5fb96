"""Shared by all tests: no network, no traces outside temporary folders, tiny models and data folders."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

# Imported modules stay in memory; looking for garbage among them takes a fifth of the collection's time.
gc.disable()
# Before anything imports a library that reads these once, at import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
_SCRATCH = tempfile.TemporaryDirectory(prefix="medteb-tests-")
os.environ["MTEB_CACHE"] = str(Path(_SCRATCH.name) / "mteb")
os.environ["HF_DATASETS_CACHE"] = str(Path(_SCRATCH.name) / "datasets")
if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # workers, and the commands they start, share the cores: no spinning threads
    os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in ("MEDTEB_DATA", "MEDTEB_TASKS", "MEDTEB_AUTOLOAD", "MAR_HOME", "MAR_STORE"):
    os.environ.pop(_name, None)

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# Hand-written; enough characters for a tokenizer and a few tasks that can be told apart by eye.
DOCUMENTS = {
    "d1": "感冒多由病毒引起，一般多休息、多喝水即可，发热时可以服用退烧药。",
    "d2": "高血压患者应低盐饮食，规律服药，定期测量血压。",
    "d3": "糖尿病需要控制饮食和体重，并监测血糖。",
    "d4": "胃炎患者宜清淡饮食，避免辛辣和饮酒。",
    "d5": "骨折后应制动，并尽快到医院拍片检查。",
    "d6": "过敏性鼻炎应远离过敏原，可使用鼻喷激素。",
}
QUERIES = {"q1": "感冒发烧吃什么药", "q2": "血压高平时注意什么", "q3": "胃炎能喝酒吗"}
QRELS = {"q1": {"d1": 1}, "q2": {"d2": 2, "d3": 1}, "q3": {"d4": 1}}


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_judged(folder: Path, rows: Iterable[tuple], name: str = "qrels/test.tsv") -> None:
    """A table of query, document and score."""
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_retrieval(folder: Path, *, top_ranked: bool = False) -> Path:
    """A retrieval folder in the Hub layout, or a reranking folder over all documents."""
    write_jsonl(folder / "corpus.jsonl", [{"_id": k, "title": "", "text": t} for k, t in DOCUMENTS.items()])
    write_jsonl(folder / "queries.jsonl", [{"_id": k, "text": t} for k, t in QUERIES.items()])
    write_judged(folder, [(q, d, score) for q, row in QRELS.items() for d, score in row.items()])
    if top_ranked:
        rows = [{"query-id": query, "corpus-ids": sorted(DOCUMENTS, reverse=True)} for query in QUERIES]
        write_jsonl(folder / "top_ranked.jsonl", rows)
    return folder


def write_sts(folder: Path) -> Path:
    """Pairs of texts with scores 0 to 4."""
    texts = list(DOCUMENTS.values())
    rows = [
        {"sentence1": a, "sentence2": b[: len(b) - 4 * i], "score": float(i)}
        for i, (a, b) in enumerate(itertools.pairwise(texts))
    ]
    write_jsonl(folder / "test.jsonl", [*rows, {"sentence1": texts[0], "sentence2": texts[0], "score": 4.0}])
    return folder


def write_pairs(folder: Path) -> Path:
    """Pairs of texts, equal (1) or different (0)."""
    texts = list(DOCUMENTS.values())
    rows = [{"sentence1": t, "sentence2": t, "label": 1} for t in texts[:3]]
    rows += [{"sentence1": a, "sentence2": b, "label": 0} for a, b in zip(texts[:4], texts[2:], strict=True)]
    write_jsonl(folder / "test.jsonl", rows)
    return folder


def write_classification(folder: Path) -> Path:
    """Texts of three classes, labels by name."""
    texts = list(DOCUMENTS.values())
    for split, extra in (("train", "。"), ("test", "")):
        rows = [{"text": f"{text}{extra}", "label": f"科室{i % 3}"} for i, text in enumerate(texts)]
        write_jsonl(folder / f"{split}.jsonl", rows)
    return folder


def write_clustering(folder: Path) -> Path:
    """Texts of three clusters, one per row."""
    rows = [{"sentences": text, "labels": f"类{i % 3}"} for i, text in enumerate(DOCUMENTS.values())]
    write_jsonl(folder / "test.jsonl", rows)
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "Retrieval": write_retrieval,
    "Reranking": lambda folder: write_retrieval(folder, top_ranked=True),
    "STS": write_sts,
    "PairClassification": write_pairs,
    "Classification": write_classification,
    "Clustering": write_clustering,
}


def pytest_collection() -> None:
    """Without a device, torch queues each seed with a stack trace: mteb sets thousands when imported."""
    import torch

    for device, module in ((torch.cuda, torch.cuda.random), (torch.xpu, torch.xpu.random), (torch.mtia,) * 2):
        if not device.is_available():
            module._lazy_call = lambda *call, **options: None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(name: str) -> Iterator[Any]:
    """`thorough(but=[...])`: the parameters of these ids stay in the default suite."""
    items = yield
    for item in items if isinstance(items, list) else []:
        for mark in [mark for mark in item.own_markers if mark.name == "thorough" and mark.kwargs]:
            stay = {text.encode("unicode_escape").decode("ascii") for text in mark.kwargs["but"]}
            known = {one.callspec.id for one in items}
            if stay - known:
                raise pytest.UsageError(f"{item.nodeid}: no parameters {sorted(stay - known)}")
            if item.callspec.id in stay:
                item.own_markers.remove(mark)
    return items


def pytest_configure() -> None:
    """Commands are built, and certificates read, once in this process instead of for each call."""
    import ssl
    import sys

    import absl.logging
    import typer.main

    # Its handler keeps the stream of its import, pytest's own, and closes it when a server sets up logging.
    absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__

    typer.main.get_command = functools.cache(typer.main.get_command)
    ssl.create_default_context = functools.cache(ssl.create_default_context)


def pytest_collection_finish() -> None:
    """Collections of garbage skip what is imported by now: stages of training ask for whole ones."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Collections of garbage skip what earlier test files left: imported modules, and what these keep."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def loggers_as_before():
    """A server that is configured in this process takes the log of the package over."""
    kept = {name: logging.getLogger(name) for name in ("mar_st", "uvicorn.error")}
    states = {name: (one.handlers, one.propagate, one.level) for name, one in kept.items()}
    yield
    for name, (handlers, propagate, level) in states.items():
        kept[name].handlers, kept[name].propagate = handlers, propagate
        if kept[name].level != level:
            kept[name].setLevel(level)


@pytest.fixture(autouse=True)
def log_levels_as_before():
    """Commands that run in this process quieten libraries for good, as they may in their own."""
    names = (
        "",
        "mteb",
        "medteb_mteb",
        "transformers",
        "sentence_transformers",
        "datasets",
        "huggingface_hub",
    )
    levels = {name: logging.getLogger(name).level for name in names}
    disabled = logging.root.manager.disable
    yield
    # Each of these calls looks at every logger there is, so only what changed is set.
    if logging.root.manager.disable != disabled:
        logging.disable(disabled)
    for name, level in levels.items():
        if logging.getLogger(name).level != level:
            logging.getLogger(name).setLevel(level)


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny data folder of any task type: ``make_folder("STS", "name")``."""

    def make(kind: str, name: str | None = None) -> Path:
        return WRITERS[kind](tmp_path / (name or f"tiny-{kind.lower()}"))

    return make


def save_tokenizer(folder: Path) -> int:
    """Saves a character tokenizer with BERT's special tokens; returns the size of its vocabulary."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = sorted(set("".join([*DOCUMENTS.values(), *QUERIES.values()])))
    vocabulary = {token: index for index, token in enumerate([*special, *characters])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )
    tokenizer.save_pretrained(folder)
    return len(vocabulary)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved SentenceTransformer: BERT, 1 layer x 32, random weights from a seed, CLS pooling."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    base = tmp_path_factory.mktemp("tiny-encoder")
    size = save_tokenizer(base / "bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(base / "bert")
    transformer = Transformer(str(base / "bert"))
    modules = [transformer, Pooling(32, pooling_mode="cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(base / "tiny-encoder"))
    return base / "tiny-encoder"


@pytest.fixture
def datasets_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of `datasets` for one test alone: it finds folders by their base name."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test with the marker `network` ask the Hub, which is shut to all others."""
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real evaluation sets kept beside the repository; tests that need them are skipped without."""
    if not (SHARED_DATA / "eval").is_dir():
        pytest.skip(f"no evaluation sets at {SHARED_DATA}")
    return SHARED_DATA
