"""The page of file formats names the fields, columns and versions of the source."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args

import pytest

from mar_st.data.read import KNOWN_COLUMNS
from mar_st.data.triples import TRIPLE_COLUMNS
from mar_st.encode import folder as vectors
from mar_st.evaluation.scored_set import Task
from mar_st.files import digests
from mar_st.index import manifest as indexes
from mar_st.lookup.saved import CONFIG_KEYS
from mar_st.mining import folder as mining
from mar_st.online.listing import ExportVariant, Listing
from mar_st.online.lookup import LookupListing
from mar_st.recipes.schema import Data
from mar_st.study.schema import Published, Study, StudyRow
from medteb_mteb.curation.anonymize import sheet as doubtful
from medteb_mteb.curation.files.sources import TextSource
from medteb_mteb.curation.judge.config import Judge, Judges, LearnedJudge
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.labels import sheet as review
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.llm.journal import AnswerJournal
from medteb_mteb.curation.pipeline.schema import Pipeline
from medteb_mteb.curation.pipeline.state import StepRecord
from medteb_mteb.curation.relatives.fetch import responses
from medteb_mteb.editions.manifest import _RESERVED_KEYS
from medteb_mteb.english.snapshot import SnapshotOptions
from medteb_mteb.folders.judged import _COLUMN_BY_FILE as JUDGED
from medteb_mteb.folders.labelled import _COLUMNS as LABELLED
from medteb_mteb.folders.settings import _SETTING_KEYS, TaskType
from medteb_mteb.nano.rankings import KeptRankings
from tests.docs.formats_page import (
    BUILD,
    DATA,
    EXPORT,
    PAGE,
    RESULTS,
    STUDY,
    TEXTS,
    Fields,
    fields_on_page,
    names,
    rows_on_page,
)

if TYPE_CHECKING:
    from pydantic import BaseModel


def of_model(kind: type[BaseModel], but: type[BaseModel] | None = None) -> Fields:
    inherited = set(but.model_fields) if but else set()
    fields = kind.model_fields.items()
    return {name: field.is_required() for name, field in fields if name not in inherited}


def of_dataclass(kind: Any, *also: str) -> Fields:
    none = dataclasses.MISSING
    fields = {f.name: f.default is none and f.default_factory is none for f in dataclasses.fields(kind)}
    return dict.fromkeys(also, True) | fields


@pytest.mark.parametrize(
    ("section", "what", "expected"),
    [
        (DATA, "`medteb` in the header of `README.md`", dict.fromkeys(_SETTING_KEYS, False)),
        (DATA, "`manifest.json`", dict.fromkeys(_RESERVED_KEYS, True)),
        (
            "Snapshot of English MedTEB",
            "`options`",
            dict.fromkeys(dataclasses.asdict(SnapshotOptions()), True),
        ),
        (RESULTS, "rankings file", of_dataclass(KeptRankings, "form")),
        ("Model folder", "a lookup encoder's `config.json`", dict.fromkeys(CONFIG_KEYS, True)),
        (STUDY, "study", of_model(Study)),
        (STUDY, "row", of_model(StudyRow)),
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
    triples = set().union(*(columns for form, columns in forms.items() if form.startswith("triples")))
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
