"""Builds a split of a Nano set and writes it in the published layout, beside the existing splits."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mar_st.files import finished
from mar_st.model.opening import open_model
from medteb_mteb.curation.files.folder import alone, read_json, write_text
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.nano.candidates import RRF_K, SEED, hybrid_lists
from medteb_mteb.curation.nano.lexical import NANO_B, NANO_K1, bm25_lists, check_tokens, choose_tokens
from medteb_mteb.curation.nano.sample import DOCUMENT_COUNT, MAX_POSITIVES, QUERY_COUNT, read_source, sample
from medteb_mteb.curation.pooling.encoders import encoder_source
from medteb_mteb.editions import sha256_of
from medteb_mteb.nano.layout import HYBRID_SIZE, NanoData, check_split, read_split
from medteb_mteb.nano.measures import score_rankings
from medteb_mteb.nano.table import BM25, HYBRID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mar_st.mining.retrievers import Dense
    from medteb_mteb.curation.nano.lexical import Tokens

__all__ = ["RECORD_FILE", "NanoSettings", "build_nano", "list_name", "open_dense"]

logger = logging.getLogger(__name__)

#: Sources of the build, by split.
RECORD_FILE = "nano.json"
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class NanoSettings:
    """The protocol; the defaults are the published one.

    Attributes:
        queries: Number of queries of the split.
        documents: Number of documents of the split.
        most_positives: Maximum number of positives of a query.
        depth: Length of BM25's and of the dense list.
        size: Length of a hybrid list without its safeguard.
        k: Added to every rank in reciprocal rank fusion.
        seed: Seed of the safeguards.
        tokens: Tokenisation of BM25; default by language.
    """

    queries: int = QUERY_COUNT
    documents: int = DOCUMENT_COUNT
    most_positives: int = MAX_POSITIVES
    depth: int = 500
    size: int = HYBRID_SIZE
    k: int = RRF_K
    seed: int = SEED
    tokens: Tokens | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown tokenisation before anything is read."""
        if self.tokens is not None:
            check_tokens(self.tokens)


def build_nano(
    folder: Path | str,
    out: Path | str,
    *,
    split: str = "test",
    name: str | None = None,
    dense: Dense | None = None,
    settings: NanoSettings | None = None,
    say: Callable[[str], None] = logger.info,
) -> dict[str, Any]:
    """Draw a split, rank its candidates, check it and write it.

    A split built before from the same source with the same settings is kept, as are other splits.

    Args:
        folder: Retrieval folder in the Hub layout.
        out: Folder of the Nano set.
        split: Split of the source's qrels.
        name: Name of the Nano split; default the source folder's name.
        dense: Dense retriever; without one, there is only BM25's list.
        settings: The protocol.
        say: Called with a line per step.

    Returns:
        The entry of the split in `nano.json`.

    Raises:
        BuildError: The source has nothing to sample, or the split was already built with other settings.
        FolderError: The source cannot be read.
    """
    how, out, folder = settings or NanoSettings(), Path(out), Path(folder).expanduser().resolve()
    name = folder.name if name is None else name
    if not _SPLIT_NAME.fullmatch(name):
        raise BuildError(
            f"A split is named by letters, digits, '_', '.' and '-'; got {name!r}. Give another name."
        )
    if how.size > how.depth:
        raise BuildError(f"size is at most depth, {how.depth}; got {how.size}.")
    source = read_source(folder, split)
    drawn = sample(
        source, name, queries=how.queries, documents=how.documents, most_positives=how.most_positives
    )
    data = drawn.data
    tokens = how.tokens or choose_tokens(source.languages, list(data.queries.values()))
    identity: dict[str, Any] = {
        "source": folder.name,
        "source_split": split,
        "source_revision": source.revision,
        "settings": asdict(how) | {"tokens": tokens, "k1": NANO_K1, "b": NANO_B},
        "dense": dense.identity() if dense else None,
    }
    with alone(out):
        record = _record(out)
        before = record["splits"].get(name)
        if before is not None:
            _check_same(out, name, before, identity)
            say(f"{name}: built before")
            read_split(out, name)
            return dict(before)
        if dense is not None and list_name(dense.name) in (BM25, HYBRID, "corpus", "queries", "qrels"):
            raise BuildError(
                f"The dense list would have the name of a table, {dense.name!r}; rename the model's folder."
            )
        say(f"{name}: {len(data.queries)} queries, {len(data.corpus):,} documents; BM25 over {tokens} words")
        lists = {BM25: bm25_lists(data.corpus, data.queries, tokens, how.depth)}
        if dense is not None:
            say(f"{name}: {dense.name}")
            lists[list_name(dense.name)] = _dense_lists(dense, data, how.depth)
            lists[HYBRID] = hybrid_lists(
                list(lists.values()), data.qrels, name, size=how.size, k=how.k, seed=how.seed
            )
        data = NanoData(name, data.corpus, data.queries, data.qrels, lists)
        if how.size == HYBRID_SIZE:
            check_split(data, out)
        files = _write_tables(out, data)
        entry = identity | _counts(data, how.size) | {"left_out": dict(drawn.left_out), "files": files}
        record["splits"][name] = entry
        _write_card(out, record, source.languages)
        _write_record(out, record)
    return entry


def open_dense(
    name: str,
    *,
    prompt_name: str | None = None,
    store: Path | None = None,
    batch_size: int = 64,
    show_progress: bool = True,
) -> Dense:
    """Open a dense retriever for a Nano set.

    Args:
        name: Model folder, Hub name, or a model of this project.
        prompt_name: Stored prompt of the model for queries; default as defined by the model.
        store: Folder of stored vectors; default none.
        batch_size: Texts encoded at once.
        show_progress: Show a progress bar.

    Raises:
        BuildError: The model or prompt does not exist.
    """
    from mar_st.mining.retrievers import Dense  # lazy: torch
    from mar_st.model.encoders import check_source  # lazy: torch

    place = encoder_source(name)
    check_source(place, what="model")
    model = open_model(place)
    if prompt_name is not None and prompt_name not in model.prompts:
        available = ", ".join(sorted(model.prompts)) or "none"
        raise BuildError(f"{name} has no prompt {prompt_name!r}; it has {available}.")
    prompt = None if prompt_name is None else model.prompts[prompt_name]
    dense = Dense(model, store=store, prompt=prompt, batch_size=batch_size, show_progress=show_progress)
    dense.name = Path(name).name
    return dense


def list_name(model: str) -> str:
    """Return the name of a model's candidate list, in the published form: `harrier_oss_v1_270m`.

    Args:
        model: Name of the model.
    """
    return re.sub(r"\W+", "_", model.rpartition("/")[2].lower().replace(".", "_").replace("-", "_")).strip(
        "_"
    )


def _dense_lists(dense: Dense, data: NanoData, depth: int) -> dict[str, list[str]]:
    ids = list(data.corpus)
    dense.prepare(list(data.queries.values()), list(data.corpus.values()))
    hits = dense.search(range(len(data.queries)), depth, [[] for _ in data.queries])  # type: ignore[misc]
    return {
        query: [ids[place] for place in places if place >= 0]
        for query, places in zip(data.queries, hits.documents, strict=True)
    }


def _record(out: Path) -> dict[str, Any]:
    if (out / RECORD_FILE).is_file():
        return read_json(out / RECORD_FILE)
    if others := sorted(path.name for path in out.iterdir() if not path.name.startswith(".")):
        raise BuildError(f"{out} holds other files ({others[0]}); give a new folder.")
    record: dict[str, Any] = {"splits": {}}
    _write_record(out, record)  # a build that is cut short is known as one
    return record


def _write_record(out: Path, record: Mapping[str, Any]) -> None:
    write_text(out / RECORD_FILE, json.dumps(record, ensure_ascii=False, indent=2) + "\n")


def _check_same(out: Path, name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    wanted = json.loads(json.dumps(now))
    if changed := [key for key in wanted if before.get(key) != wanted[key]]:
        raise BuildError(
            f"{out} holds a split {name!r} with other {', '.join(changed)}. Give another folder or name, or "
            "delete that one."
        )
    for file, digest in before["files"].items():
        if not (out / file).is_file() or sha256_of(out / file) != digest:
            raise BuildError(f"{out / file} is not what was built. Delete {out} and build it again.")


def _write_tables(out: Path, data: NanoData) -> dict[str, str]:
    """Write a file per table; returns their digests by path."""
    import pyarrow as pa  # lazy: pyarrow
    import pyarrow.parquet as pq  # lazy: pyarrow

    pairs = [(query, document) for query, documents in data.qrels.items() for document in documents]
    tables: dict[str, dict[str, Sequence[Any]]] = {
        "corpus": {"_id": list(data.corpus), "text": list(data.corpus.values())},
        "queries": {"_id": list(data.queries), "text": list(data.queries.values())},
        "qrels": {"query-id": [q for q, _ in pairs], "corpus-id": [d for _, d in pairs]},
    }
    for name, rows in data.lists.items():
        tables[name] = {"query-id": list(data.queries), "corpus-ids": [rows[query] for query in data.queries]}
    digests = {}
    for name, columns in tables.items():
        path = out / name / f"{data.split}.parquet"
        path.parent.mkdir(exist_ok=True)
        with finished(path) as part:
            pq.write_table(pa.table(columns), part)
        digests[path.relative_to(out).as_posix()] = sha256_of(path)
    return digests


def _counts(data: NanoData, size: int) -> dict[str, Any]:
    positives = [len(documents) for documents in data.qrels.values()]
    counts: dict[str, Any] = {
        "queries": len(data.queries),
        "documents": len(data.corpus),
        "positives": sum(positives),
        "most_positives": max(positives),
        "query_mean_chars": sum(map(len, data.queries.values())) / len(data.queries),
        "document_mean_chars": sum(map(len, data.corpus.values())) / len(data.corpus),
        "lists": {
            name: asdict(score_rankings(rows, data.qrels))
            | {"mean_length": sum(map(len, rows.values())) / len(rows)}
            for name, rows in data.lists.items()
        },
    }
    if HYBRID in data.lists:
        counts["safeguards"] = sum(
            len(rows) > min(size, len(data.corpus)) for rows in data.lists[HYBRID].values()
        )
    return counts


def _write_card(out: Path, record: Mapping[str, Any], languages: Sequence[str]) -> None:
    configs: dict[str, list[dict[str, str]]] = {}
    for split, built in record["splits"].items():
        for file in built["files"]:
            configs.setdefault(file.partition("/")[0], []).append({"split": split, "path": file})
    header: dict[str, Any] = {
        "configs": [{"config_name": name, "data_files": entries} for name, entries in configs.items()]
    }
    if languages:
        header["language"] = list(languages)
    lines = [
        "---",
        yaml.safe_dump(header, sort_keys=False, allow_unicode=True).rstrip(),
        "---",
        f"# {out.resolve().name}",
        "",
        "Built with `medteb build nano`; `nano.json` says from what and how. The licences are the sources'.",
        "",
        "| split | queries | documents | positives | source |",
        "|---|---:|---:|---:|---|",
        *(
            f"| {name} | {one['queries']} | {one['documents']:,} | {one['positives']} | {one['source']} |"
            for name, one in record["splits"].items()
        ),
        "",
    ]
    write_text(out / "README.md", "\n".join(lines))
