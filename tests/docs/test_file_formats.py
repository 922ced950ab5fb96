"""The page of file formats names the fields of the classes, and the files and keys that commands write."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.data.read import KNOWN_COLUMNS
from mar_st.data.triples import TRIPLE_COLUMNS
from mar_st.encode import EncodeSettings, encode_corpus, write_vectors
from mar_st.encode import folder as vectors
from mar_st.encode.codes import VectorType
from mar_st.evaluation.scored_set import Task
from mar_st.files import digests
from mar_st.files.digests import entry_of, write_digests
from mar_st.index import build_index, update
from mar_st.index import manifest as indexes
from mar_st.lookup.saved import CONFIG_KEYS
from mar_st.mining import folder as mining
from mar_st.mining.rules import Rules
from mar_st.model.names import packaged_folder
from mar_st.model.packed import pack
from mar_st.online.listing import ExportVariant, Listing
from mar_st.online.lookup import LookupListing
from mar_st.recipes.schema import Data
from mar_st.spaces.alignment import SpaceRun
from mar_st.study.schema import Published, Row, Study
from mar_st.teachers.store import TeacherStore
from medteb_mteb.curation.anonymize import sheet as doubtful
from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.sources import TextSource
from medteb_mteb.curation.files.step import run_step
from medteb_mteb.curation.judge.config import Judge, Judges, LearnedJudge
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.labels import sheet as review
from medteb_mteb.curation.labels.labelling import write_labels
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.llm.journal import AnswerJournal
from medteb_mteb.curation.nano.build import build_nano
from medteb_mteb.curation.pipeline.schema import Pipeline
from medteb_mteb.curation.pipeline.state import State, StepRecord
from medteb_mteb.curation.pooling.pool import Pooling, open_retriever, pool
from medteb_mteb.curation.relatives.fetch import responses
from medteb_mteb.editions import load_edition
from medteb_mteb.editions.manifest import _RESERVED_KEYS
from medteb_mteb.english.snapshot import Options
from medteb_mteb.folders.judged import _COLUMN_BY_FILE as JUDGED
from medteb_mteb.folders.labelled import _COLUMNS as LABELLED
from medteb_mteb.folders.layout import _SETTING_KEYS, TaskType
from medteb_mteb.nano.rankings import SUFFIX, KeptRankings, write_rankings
from medteb_mteb.report.intervals import MeanSample
from medteb_mteb.report.scores import ItemScores, save_item_scores
from medteb_mteb.validate.findings import Finding, Report, Table
from tests.conftest import DOCUMENTS, QUERIES, write_jsonl, write_retrieval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from medteb_mteb.curation.llm.database import Database

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "files.md"

#: Field -> True if it is always there.
Fields = dict[str, bool]


class PageTable(NamedTuple):
    section: str
    header: list[str]
    rows: list[list[str]]


@cache
def page_tables() -> list[PageTable]:
    """All tables of the page, each with the title of its section."""
    found: list[PageTable] = []
    section, inside = "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif cells and not inside:
            found.append(PageTable(section, cells, []))
        elif cells and set(line) - set("|-"):
            found[-1].rows.append(cells)
        inside = bool(cells)
    return found


def names(cell: str) -> Fields:
    """Names in code of a cell; a question mark behind one marks an optional one."""
    return {name: not mark for name, mark in re.findall(r"`([^`]+)`(\?)?", cell)}


def fields_on_page(section: str, what: str) -> Fields:
    """Fields of an object, from a table of its own or from a row of a table of objects."""
    for table in page_tables():
        if table.section != section:
            continue
        if table.header[0] == f"field of {what}":
            found: Fields = {}
            for name, kind, _ in table.rows:
                found |= dict.fromkeys(names(name), "optional" not in kind)
            return found
        if table.header == ["object", "fields", "meaning"]:
            for name, given, _ in table.rows:
                if name == what:
                    return names(given)
    raise AssertionError(f"the section {section!r} has no fields of {what}")


def rows_on_page(section: str, first: str) -> dict[str, str]:
    """First and second cell of the rows of a table whose first column has this title."""
    (table,) = [one for one in page_tables() if (one.section, one.header[0]) == (section, first)]
    return {row[0]: row[1] for row in table.rows}


def pattern(name: str) -> re.Pattern[str]:
    """A file as the page writes it: `N`s are digits, other words in capitals are names."""

    def replaced(word: re.Match[str]) -> str:
        if word.group() in ("README", "S"):
            return word.group()
        return r"\d+" if set(word.group()) == {"N"} else "[^/]+"

    made = re.sub(r"(?<![A-Za-z])[A-Z]+(?![A-Za-z])", replaced, re.escape(name))
    return re.compile(f"{made}.*" if name.endswith("/") else made)


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def check_files(folder: Path, section: str, first: str = "file", *, but: Sequence[str] = ()) -> None:
    """The files of a folder are those of the page, and all of these that are not optional are there.

    Args:
        folder: The folder.
        section: Section of the page.
        first: Title of the first column of the table.
        but: Files of the table that belong to another variant of the format.
    """
    listed = rows_on_page(section, first)
    there = files_below(folder)
    every = [pattern(name) for cell in listed for name in names(cell)]
    assert [name for name in there if not any(one.fullmatch(name) for one in every)] == []
    for cell, content in listed.items():
        if re.match("optional|only (while|after|during)", content):
            continue
        for name in names(cell):
            assert name in but or any(pattern(name).fullmatch(one) for one in there), f"no {name}"


def check_keys(section: str, what: str, content: Mapping[str, Any]) -> None:
    """The keys that were written are those of the page."""
    check_known(fields_on_page(section, what), content)


def check_known(on_page: Fields, content: Iterable[str]) -> None:
    written = set(content)
    assert written - set(on_page) == set()
    assert {name for name, needed in on_page.items() if needed} - written == set()


def read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def of_model(kind: type[BaseModel], but: type[BaseModel] | None = None) -> Fields:
    inherited = set(but.model_fields) if but else set()
    fields = kind.model_fields.items()
    return {name: field.is_required() for name, field in fields if name not in inherited}


def of_dataclass(kind: Any, *also: str) -> Fields:
    none = dataclasses.MISSING
    fields = {f.name: f.default is none and f.default_factory is none for f in dataclasses.fields(kind)}
    return dict.fromkeys(also, True) | fields


DATA, EXPORT, BUILD = "Data folder and edition", "Exported query encoder", "Settings of a build"
RESULTS, STUDY, TEXTS = "Results of `medteb run`", "Ablation study", "Texts of a step"


@pytest.mark.parametrize(
    ("section", "what", "expected"),
    [
        (DATA, "`medteb` in the header of `README.md`", dict.fromkeys(_SETTING_KEYS, False)),
        (DATA, "`manifest.json`", dict.fromkeys(_RESERVED_KEYS, True)),
        ("Snapshot of English MedTEB", "`options`", dict.fromkeys(dataclasses.asdict(Options()), True)),
        (RESULTS, "rankings file", of_dataclass(KeptRankings, "form")),
        ("Model folder", "a lookup encoder's `config.json`", dict.fromkeys(CONFIG_KEYS, True)),
        (STUDY, "study", of_model(Study)),
        (STUDY, "row", of_model(Row)),
        (STUDY, "task", of_model(Task)),
        (STUDY, "published", of_model(Published)),
        (EXPORT, "`export.json` (graph)", of_dataclass(Listing, "format", "version")),
        (EXPORT, "`export.json` (lookup)", of_dataclass(LookupListing, "format", "version")),
        (EXPORT, "variant", of_dataclass(ExportVariant)),
        (BUILD, "`build.yaml`", of_model(Pipeline)),
        (BUILD, "`judges.yaml`", of_model(Judges)),
        (BUILD, "LLM", of_model(LLM)),
        (BUILD, "LLM as a judge, also", of_model(Judge, but=LLM)),
        (BUILD, "cross-encoder as a judge", of_model(LearnedJudge)),
        ("Build folder", "step", dict.fromkeys(of_dataclass(StepRecord), True)),
        (TEXTS, "source", of_model(TextSource)),
    ],
)
def test_the_fields_on_the_page_are_those_of_the_class(section, what, expected):
    assert fields_on_page(section, what) == expected


def test_the_columns_of_labelled_rows_and_judged_pairs_are_those_that_are_read():
    columns = rows_on_page(DATA, "table")
    assert set(LABELLED) < set(get_args(TaskType))
    for kind, expected in LABELLED.items():
        assert tuple(names(columns[kind]))[: len(expected)] == expected
    listed = {f"{name}.tsv" for cell in columns if cell[0].islower() for name in cell.split(", ")}
    assert set(JUDGED) < listed
    for file, column in JUDGED.items():
        (cell,) = [cell for name, cell in columns.items() if file.removesuffix(".tsv") in name.split(", ")]
        assert set(names(cell)) == {"query-id", "corpus-id", column} - {""}


def test_the_columns_of_training_data_are_those_that_are_read():
    forms = {form: set(names(cell)) for form, cell in rows_on_page("Training data", "form").items()}
    triples = set().union(*(found for form, found in forms.items() if form.startswith("triples")))
    assert triples - {"negative_1", "negative_2"} == set(TRIPLE_COLUMNS)
    assert set().union(*forms.values()) - {"negative_1", "negative_2"} == set(KNOWN_COLUMNS)
    assert {form for form in forms if ":" not in form} | {"auto", "triples"} == set(
        get_args(Data.model_fields["form"].annotation)
    )


def test_formats_and_versions_are_those_of_the_source():
    text = PAGE.read_text(encoding="utf-8")
    for name, version in (
        (vectors.FORMAT, vectors.VERSION),
        (indexes.FORMAT, indexes.VERSION),
        (digests.FORMAT, digests.VERSION),
        (Listing.form, Listing.version),
        (LookupListing.form, LookupListing.version),
        (responses._FORMAT, responses._VERSION),
    ):
        assert f"`{name}`, {version}" in text
    assert f"`{mining.FORMAT}`" in text
    for kind in (JudgementJournal, AnswerJournal):
        assert f"`0x{kind.application:X}`" in text


def test_sheets_have_the_columns_of_the_page():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for sheet in (review, doubtful):
        assert ", ".join(f"`{name}`" for name in sheet.COLUMNS) in text


# Folders that the public interface writes.


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
    for name, found in columns.items():
        left_out = listed[name] - set(found)
        assert set(found) <= listed[name]
        assert left_out <= ({"judge", "llm", "controls", "controls_failed"} if name == "accounts" else set())


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
    _, found, _ = write_rows(task.name, rows, described, tmp_path, {})
    check_keys(
        "Snapshot of English MedTEB", "`snapshot.json`", read(tmp_path / "MedTEB-eng" / "snapshot.json")
    )
    check_keys("Snapshot of English MedTEB", "task", found)
