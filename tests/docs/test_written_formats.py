"""The files and keys that the public interface writes are those of the page of file formats."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.encode import EncodeSettings, encode_corpus, write_vectors
from mar_st.encode.codes import VectorType
from mar_st.files.digests import entry_of, write_digests
from mar_st.index import build_index, update
from mar_st.mining import folder as mining
from mar_st.mining.rules import Rules
from mar_st.model.names import packaged_folder
from mar_st.model.packed import pack
from mar_st.recipes.schema import Data
from mar_st.spaces.alignment import SpaceRun
from mar_st.teachers.store import TeacherStore
from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.sources import TextSource
from medteb_mteb.curation.files.step import run_step
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.labels.labelling import write_labels
from medteb_mteb.curation.llm.journal import AnswerJournal
from medteb_mteb.curation.nano.build import build_nano
from medteb_mteb.curation.pipeline.state import State, StepRecord
from medteb_mteb.curation.pooling.pool import Pooling, open_retriever, pool
from medteb_mteb.curation.relatives.fetch import responses
from medteb_mteb.editions import load_edition
from medteb_mteb.nano.rankings import SUFFIX, KeptRankings, write_rankings
from medteb_mteb.report.intervals import MeanSample
from medteb_mteb.report.scores import ItemScores, save_item_scores
from medteb_mteb.validate.findings import Finding, Report, Table
from tests.conftest import DOCUMENTS, QUERIES, write_jsonl, write_retrieval
from tests.docs.formats_page import (
    DATA,
    EXPORT,
    PAGE,
    RESULTS,
    TEXTS,
    check_files,
    check_keys,
    check_known,
    fields_on_page,
    files_below,
    names,
    read,
    rows_on_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from medteb_mteb.curation.llm.database import Database


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_retrieval(tmp_path_factory.mktemp("data") / "Tiny")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """Vectors of eight dimensions, which no model made."""
    matrix = np.random.default_rng(0).normal(size=(len(DOCUMENTS), 8)).astype(np.float32)
    out = tmp_path_factory.mktemp("vectors") / "written"
    write_vectors(out, list(DOCUMENTS), matrix, dtype="int8", texts=list(DOCUMENTS.values()), shard=4)
    return out


def check_vectors(folder: Path) -> dict[str, Any]:
    check_files(folder, "Vector folder")
    manifest = read(folder / "manifest.json")
    check_keys("Vector folder", "`manifest.json`", manifest)
    check_keys("Vector folder", "`settings`", manifest["settings"])
    check_keys("Vector folder", "shard", manifest["shards"][0])
    assert set(manifest["shards"][0]) == set(fields_on_page("Vector folder", "shard"))
    return manifest


def test_a_folder_of_vectors(written, data, tmp_path):
    check_vectors(written)
    precisions = rows_on_page("Vector folder", "precision")
    assert set().union(*map(names, precisions)) == set(get_args(VectorType))
    out = tmp_path / "encoded"
    settings = EncodeSettings(precision="float16", dtype="float32")
    encode_corpus("mar-mini", data, out, settings, devices=["cpu"], show_progress=False)
    manifest = check_vectors(out)
    assert set(manifest["settings"]) == set(fields_on_page("Vector folder", "`settings`"))
    check_keys("Vector folder", "`encode.json`", read(out / "encode.json"))


def test_an_index(written, data, tmp_path):
    out = tmp_path / "index"
    corpus = data / "corpus.jsonl"
    build_index(written, out, corpus=corpus, kind="exact", tokens="char-bigram", progress=False)
    check_files(out, "Index")
    update.delete(out, ["d1"])
    update.delete(out, ["d2"])
    check_files(out, "Index")
    manifest = read(out / "manifest.json")
    assert "retired" in manifest
    check_keys("Index", "`manifest.json`", manifest)
    check_keys("Index", "segment", manifest["segments"][0])
    check_keys("Index", "`deleted`", manifest["segments"][0]["deleted"])
    check_keys("Conventions", "file entry", manifest["segments"][0]["files"]["rows.arrow"])


def test_an_index_of_codes(written, tmp_path):
    out = tmp_path / "index"
    build_index(written, out, kind="int8", progress=False)
    check_files(out, "Index")
    check_keys("Index", "`manifest.json`", read(out / "manifest.json"))


def test_an_edition(data, tmp_path):
    from medteb_mteb.cli import app

    folder = write_retrieval(tmp_path / "Tiny", top_ranked=True)
    arguments = ["edition", "write", str(folder), "--name", "tiny", "--license", "cc0-1.0"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    describe(load_edition(folder), {"judges": [{"name": "one"}], "anonymisers": []})
    check_files(folder, DATA)
    reserved = fields_on_page(DATA, "`manifest.json`")
    manifest = read(folder / "manifest.json")
    assert set(reserved) <= set(manifest)
    assert set(manifest["files"]["corpus.jsonl"]) == {"bytes", "sha256"}
    check_keys(DATA, "`provenance.json`", read(folder / "provenance.json"))
    columns = rows_on_page(DATA, "table")
    for file, table in (
        ("corpus.jsonl", "corpus"),
        ("queries.jsonl", "queries"),
        ("top_ranked.jsonl", "top_ranked"),
    ):
        assert set(read(folder / file)[0]) <= set(names(columns[table]))


def test_mined_triples(tmp_path):
    rows = [{"query": f"{a}{b}怎么办", "positive": f"{a}{b}的处理"} for a in "甲乙丙" for b in "头胸腹"]
    entry = Data(name="pairs", path=str(write_jsonl(tmp_path / "pairs.jsonl", rows)), prompt="")
    mining.mine_to(entry, tmp_path / "mined", ["bm25"], rules=Rules(num_negatives=2), say=lambda _: None)
    check_files(tmp_path / "mined", "Mined triples")
    check_keys("Mined triples", "`manifest.json`", read(tmp_path / "mined" / "manifest.json"))
    columns = names(rows_on_page("Mined triples", "file")["`triples.jsonl`"])
    assert set(read(tmp_path / "mined" / "triples.jsonl")[0]) == set(columns) - {"instruction", "source"}


def test_a_model_and_its_packed_form(tmp_path):
    import shutil

    model = tmp_path / "model"
    shutil.copytree(packaged_folder(), model)
    write_digests(model)
    check_files(model, "Model folder", but=["ROUTE_N_Normalize/"])
    check_keys("Model folder", "`router_config.json`", read(model / "router_config.json"))
    check_keys("Model folder", "`digests.json`", read(model / "digests.json"))
    check_keys("Conventions", "file entry", entry_of(model / "modules.json"))
    pack(model, tmp_path / "packed")
    own = set(files_below(tmp_path / "packed")) - set(files_below(model))
    assert own == {name for cell in rows_on_page("Packed model", "file") for name in names(cell)}
    assert "digests.json" not in files_below(tmp_path / "packed")
    check_keys("Packed model", "`packed.json`", read(tmp_path / "packed" / "packed.json"))


def test_a_lookup_encoder_and_its_page(data, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize

    from mar_st.export.lookup import export_lookup
    from mar_st.lookup.features import Features
    from mar_st.lookup.module import LookupEncoder

    model = tmp_path / "lookup"
    encoder = LookupEncoder(Features(["感", "冒", "药"], lengths=(1, 1), max_length=64), 8)
    SentenceTransformer(modules=[encoder, Normalize()], device="cpu").save(
        str(model), create_model_card=False
    )
    (config,) = [path for path in model.rglob("config.json") if "dictionary" in read(path)]
    check_keys("Model folder", "a lookup encoder's `config.json`", read(config))
    matrix = np.eye(len(DOCUMENTS), 8, dtype=np.float32)
    write_vectors(tmp_path / "vectors", list(DOCUMENTS), matrix)
    out = tmp_path / "page"
    given: dict[str, Any] = {"vectors": tmp_path / "vectors", "documents": data}
    export_lookup(model, out, form="lookup-json", **given)
    check_files(out, EXPORT, "file of a lookup export")
    listed = {name for cell in rows_on_page(EXPORT, "file of a lookup export") for name in names(cell)}
    assert set(files_below(out)) == listed
    listing = read(out / "export.json")
    assert set(listing) == set(fields_on_page(EXPORT, "`export.json` (lookup)"))
    check_keys("Conventions", "file entry", listing["files"]["lookup.bin"])
    assert (out / "lookup.bin").stat().st_size == 4 * (3 + 8 + 3) + 3 * 8
    assert (out / "documents.bin").stat().st_size == len(DOCUMENTS) * (4 + 8)
    assert set(read(out / "documents.json")[0]) == {"id", "title", "text"}


class _Shorten:
    name = "shorten"

    def settings(self) -> dict[str, Any]:
        return {}

    def restore(self, kept: Sequence[Text]) -> None:
        """Nothing is kept in memory."""

    def __call__(self, texts: Sequence[Text]) -> Iterator[Text | Dropped]:
        yield Dropped(texts[0], "first", "of the shard")
        yield from texts[1:]


def test_the_folder_of_a_step(data, tmp_path):
    out = tmp_path / "step"
    source = TextSource(name="site", licence="cc0-1.0")
    corpus = data / "corpus.jsonl"
    run_step(_Shorten(), corpus, out, sources=[source], show_progress=False)
    check_files(out, TEXTS, but=["entities.json", "disagreement.json"])
    identity = fields_on_page(TEXTS, "`step.json`")
    check_known(identity, read(out / "step.json"))
    check_known(identity | fields_on_page(TEXTS, "`manifest.json`, also"), read(out / "manifest.json"))
    record = fields_on_page(TEXTS, "record")
    check_known(record, read(out / "records-00000.jsonl")[0])
    dropped = record | fields_on_page(TEXTS, "dropped text, also")
    check_known(dropped, read(out / "dropped-00000.jsonl")[0])
    whole = Text("t", "text", "title", "anonymize/3:0", {"year": 2024})
    assert set(whole.to_json()) == set(record)
    assert set(Dropped(whole, "reason", "detail").to_json()) == set(dropped)
    check_keys(TEXTS, "source", read(out / "step.json")["sources"][0])


def test_pools_and_labels(tmp_path):
    queries, documents = ([Text(*row) for row in some.items()] for some in (QUERIES, DOCUMENTS))
    out = tmp_path / "pools"
    how = Pooling(size=3, depth=3)
    pool(queries, documents, [open_retriever("bm25")], out, how, show_progress=False, say=lambda _: None)
    check_files(out, "Pools")
    listed = rows_on_page("Pools", "file")
    assert set(read(out / "pools.jsonl")[0]) == set(names(listed["`pools.jsonl`"]))
    assert set(read(out / "manifest.json")) == set(names(listed["`manifest.json`"]))
    judged = [
        {"query-id": "q1", "corpus-id": f"d{number}", "judge": judge, "grade": grade}
        for number, grades in enumerate(("SA", "DD", "SD"), 1)
        for judge, grade in zip(("one", "two"), grades, strict=True)
    ]
    write_labels(write_jsonl(tmp_path / "judged.jsonl", judged), tmp_path / "labels")
    check_files(tmp_path / "labels", "Labels")
    listed = rows_on_page("Labels", "file")
    rows = read(tmp_path / "labels" / "labels.jsonl")
    assert {key for row in rows for key in row} == set(names(listed["`labels.jsonl`"]))
    assert set(read(tmp_path / "labels" / "agreement.json")) <= set(names(listed["`agreement.json`"]))
    assert set(judged[0]) <= set(names(rows_on_page("Judgements", "file")["`judgements.jsonl`"]))


@pytest.mark.parametrize(("kind", "word"), [(JudgementJournal, "judgements"), (AnswerJournal, "answers")])
def test_the_tables_of_a_journal(tmp_path, kind: type[Database[Any]], word):
    with kind(tmp_path / "journal.sqlite"):
        pass
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in tables}
    text = PAGE.read_text(encoding="utf-8")
    assert re.search(rf"`0x{kind.application:X}`, (`user_version` )?{version}\)", text)
    listed: dict[str, set[str]] = {}
    for cell, given in rows_on_page("Journals", "table").items():
        if "(" in cell and f"({word})" not in cell:
            continue
        several = list(names(cell))
        parts = given.split("; ") if len(several) > 1 else [given]
        listed |= {name: set(names(part)) for name, part in zip(several, parts, strict=True)}
    assert set(listed) == set(tables)
    for name, present in columns.items():
        left_out = listed[name] - set(present)
        assert set(present) <= listed[name]
        assert left_out <= ({"judge", "llm", "controls", "controls_failed"} if name == "accounts" else set())


@pytest.mark.thorough
def test_a_nano_set(data, tmp_path):
    build_nano(data, tmp_path / "nano", say=lambda _: None)
    check_files(tmp_path / "nano", "Nano set")
    content = read(tmp_path / "nano" / "nano.json")
    check_keys("Nano set", "`nano.json`", content)
    check_keys("Nano set", "split", content["splits"]["Tiny"])


def test_files_about_scores(tmp_path):
    scores = ItemScores(MeanSample(np.array([0.5])), "ndcg_at_10", "revision", ["q1"])
    save_item_scores(tmp_path / "items.json", scores)
    common, by_kind = (fields_on_page(RESULTS, name) for name in ("item file", "by `kind`"))
    check_known(common | by_kind, read(tmp_path / "items.json"))
    kept = KeptRankings("task", "model", "revision", {"q1": ["d1"]}, {"q1": ["d1"]})
    write_rankings(tmp_path / f"task{SUFFIX}", kept)
    content = json.loads(gzip.decompress((tmp_path / f"task{SUFFIX}").read_bytes()))
    assert set(content) == set(fields_on_page(RESULTS, "rankings file"))
    finding = Finding("size", "Large enough", "ok", "because", {}, Table(("a",), (("b",),)))
    report = Report("task", "Retrieval", "", "revision", (finding,)).to_json()
    assert set(report) == set(fields_on_page("Quality report", "report"))
    assert set(report["findings"][0]) == set(fields_on_page("Quality report", "finding"))


class _Lengths:
    """A teacher whose vectors are made of the lengths of texts."""

    def identity(self, role: str) -> dict[str, Any]:
        return {"kind": "lengths", "role": role}

    def encode(self, texts: Sequence[str], role: str) -> np.ndarray:
        del role
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def test_teacher_vectors(tmp_path):
    store = TeacherStore(tmp_path / "store")
    store.vectors(_Lengths(), list(QUERIES.values()), "query", show_progress=False)
    endpoint = [f"endpoint-NAME/journal.{end}" for end in ("bin", "crc", "json")]
    check_files(tmp_path / "store", "Teacher vectors", but=endpoint)


def test_the_manifest_of_a_document_space():
    teacher = _Lengths()
    space = SimpleNamespace(full=2, dim=2, unit=False, similarity="dot")
    manifest = SpaceRun._manifest(SimpleNamespace(teacher=teacher), space, {}, {})  # type: ignore[arg-type]
    check_keys("Document space", "`space.json`", manifest)


def test_the_state_of_a_build(tmp_path):
    State(tmp_path).put("queries", StepRecord("anonymize", "fingerprint"))
    content = read(tmp_path / "build.json")
    check_keys("Build folder", "`build.json`", content)
    check_keys("Build folder", "step", content["steps"]["queries"])


def test_a_folder_of_responses(tmp_path):
    web: Any = SimpleNamespace(base="http://127.0.0.1", get=lambda path, params, parse: (b"{}", {}))
    identity = {"source": "biorxiv", "extent": {"pages": 1}}
    fetching = responses.Fetching(tmp_path, identity, "https://example.org", web, print)
    fetching.ask("/details", {}, lambda body: body, ".json")
    check_files(tmp_path, "Fetched responses", but=["fetched.json"])
    fetching.freeze()
    check_files(tmp_path, "Fetched responses")
    content = read(tmp_path / "fetched.json")
    check_keys("Fetched responses", "`fetched.json`", content)
    check_keys("Fetched responses", "response", content["responses"][0])


def test_a_snapshot(tmp_path):
    from medteb_mteb.curation.relatives.english import write_rows
    from medteb_mteb.english.table import english_tasks

    task = next(task for task in english_tasks().values() if task.type == "PAIR")
    rows = [{"sentence1": "a", "sentence2": "b", "label": label} for label in (0, 1)]
    described = {"differs": "nothing", "licence": "cc0-1.0", "made_from": {}}
    _, entry, _ = write_rows(task.name, rows, described, tmp_path, {})
    check_keys(
        "Snapshot of English MedTEB", "`snapshot.json`", read(tmp_path / "MedTEB-eng" / "snapshot.json")
    )
    check_keys("Snapshot of English MedTEB", "task", entry)
