"""Names of this project are resolved to local folders; the Hub is never asked for them."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import datasets
import huggingface_hub.constants
import pytest
from typer.testing import CliRunner

from mar_st import MAR
from mar_st.cli import app
from mar_st.data import hub_dataset
from mar_st.encode.corpus import read_corpus
from mar_st.encode.loading import resolve
from mar_st.errors import MarError
from mar_st.mining.retrievers import Dense
from mar_st.model.digest import model_digest
from mar_st.model.encoders import check_source, load_encoder
from mar_st.model.names import model_folder, model_source, packaged_folder
from mar_st.model.native_gte import fetch
from mar_st.model.published import assemble
from mar_st.model.reranker import Reranker
from mar_st.online import load_query_encoder
from mar_st.online.torch_encoder import TorchEncoder
from mar_st.spaces.encoders import given_encoder
from mar_st.spaces.space import open_teacher
from medteb_mteb.curation.files.read import read_texts

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("mar-mini", "medteb/mar-mini")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Asked(BaseException):
    """The network was asked; nothing catches this or tries again."""


@pytest.fixture
def online(monkeypatch) -> None:
    """The Hub may be asked, and whatever looks up or calls a host fails the test."""

    def refuse(*args, **_):
        raise Asked(*args[:2])

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def run(*arguments: object) -> None:
    """Run a `mar` command and let its error through."""
    CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


#: Everything that takes a model by its name: functions of a name and a scratch folder.
ENTRIES = {
    "MAR": lambda name, _: MAR(name),
    "MAR.from_pretrained": lambda name, _: MAR.from_pretrained(name),
    "MAR.from_pretrained, one route": lambda name, _: MAR.from_pretrained(name, routes="query"),
    "MAR.from_encoders": lambda name, _: MAR.from_encoders(name, name),
    "load_encoder": lambda name, _: load_encoder(name, "query"),
    "check_source": lambda name, _: check_source(name, what="backbone"),
    "model_digest": lambda name, _: model_digest(name),
    "fetch": lambda name, _: fetch(name),
    "assemble": lambda name, _: assemble(name),
    "resolve": lambda name, _: resolve(name),
    "load_query_encoder": lambda name, _: load_query_encoder(name),
    "document encoder": lambda name, _: TorchEncoder.open(name, side="document"),
    "Reranker": lambda name, _: Reranker(name).open(),
    "Dense": lambda name, folder: Dense(name, store=folder)._open(),
    "open_teacher": lambda name, folder: open_teacher(name, folder),
    "given_encoder": lambda name, _: given_encoder(name, max_length=32),
    "mar info": lambda name, _: run("info", name),
    "mar encode": lambda name, folder: run("encode", name, _corpus(folder), folder / "v"),
    "mar export": lambda name, folder: run("export", name, folder / "e", "--format", "none"),
    "mar mine": lambda name, folder: run(
        "mine", _pairs(folder), folder / "m", "--model", name, "--num-negatives", 1, "--store", folder / "s"
    ),
    "mar align": lambda name, folder: run(
        "align", name, "--out", folder / "a", "--queries", _corpus(folder), "--student", name, "--epochs", 0
    ),
}


def _corpus(folder: Path) -> Path:
    path = folder / "corpus.jsonl"
    path.write_text('{"_id": "a", "text": "高血压患者应低盐饮食"}\n', encoding="utf-8")
    return path


def _pairs(folder: Path) -> Path:
    path = folder / "pairs.jsonl"
    rows = [{"query": "血压高", "positives": ["低盐饮食"]}, {"query": "胃炎", "positives": ["清淡饮食"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


DATASETS = {
    "read_corpus": lambda name: next(read_corpus(name)),
    "hub_dataset": lambda name: hub_dataset(f"hub:{name}"),
    "read_texts": lambda name: next(read_texts(f"hub:{name}")),
}


@pytest.mark.parametrize("entry", DATASETS)
def test_the_hub_is_not_asked_for_a_data_set_of_this_project(entry, online):
    with pytest.raises(ValueError, match="this project's own"):
        DATASETS[entry]("medteb/MedTEBRetrieval")
    with pytest.raises(Asked, match="huggingface"):
        DATASETS[entry]("some-organisation/some-data")


@pytest.mark.parametrize("entry", ["MAR.from_pretrained", "check_source", "fetch", "load_query_encoder"])
def test_the_hub_is_asked_for_other_names(entry, online, tmp_path):
    with pytest.raises(Asked, match="huggingface"):
        ENTRIES[entry]("some-organisation/some-model", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_packaged_model_answers_to_both_names(name, online):
    texts = ["头疼吃什么药"]
    expected = MAR.from_pretrained(packaged_folder(), device="cpu").encode_queries(texts)
    for vectors in (
        MAR(name, device="cpu").encode_queries(texts),
        MAR.from_pretrained(name, device="cpu").encode_queries(texts),
        MAR.from_pretrained(name, routes="query", device="cpu").encode_queries(texts),
        load_query_encoder(name).encode(texts, "query"),
    ):
        assert vectors == pytest.approx(expected, abs=1e-6)
    shown = CliRunner().invoke(app, ["info", name])
    assert '"hidden_size": 128' in shown.stdout


def test_a_local_folder_takes_precedence_over_a_model_name(tmp_path):
    assert model_folder("some/name") is None
    assert model_source("some/name") == "some/name"
    (tmp_path / "mar-mini").mkdir()
    assert model_folder("mar-mini").resolve() == tmp_path / "mar-mini"


@pytest.mark.parametrize("source", ["./nix", "/nix/da", "~/nix", "a/b/c", "~nobody/at-all"])
def test_a_path_without_a_folder_is_not_a_hub_name(source):
    with pytest.raises(MarError, match="no folder"):
        model_folder(source)
