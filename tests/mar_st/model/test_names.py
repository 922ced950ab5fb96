"""Names of this project are resolved to local folders; the Hub is never asked for them."""

from __future__ import annotations

import socket

import datasets
import huggingface_hub.constants
import pytest
from typer.testing import CliRunner

from mar_st import MAR
from mar_st.cli import app
from mar_st.data.rows import hub_dataset
from mar_st.errors import MarError
from mar_st.model.digest import model_digest
from mar_st.model.encoders import check_source, load_encoder
from mar_st.model.mar import open_model
from mar_st.model.names import model_folder, model_source, packaged_folder
from mar_st.model.native_gte import fetch
from mar_st.model.published import assemble
from mar_st.model.reranker import Reranker
from mar_st.online.encoders import load_query_encoder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAR_HOME", raising=False)


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


ENTRIES = {
    "MAR": MAR,
    "MAR.from_pretrained": lambda name: MAR.from_pretrained(name, routes="query"),
    "MAR.from_encoders": lambda name: MAR.from_encoders(name, name),
    "open_model": open_model,
    "load_encoder": lambda name: load_encoder(name, "query"),
    "check_source": lambda name: check_source(name, what="backbone"),
    "model_digest": model_digest,
    "fetch": fetch,
    "assemble": assemble,
    "load_query_encoder": load_query_encoder,
    "Reranker": lambda name: Reranker(name).open(),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", ["medteb/mar-nano", "MedTEB/anything", "mar-0.3b-4b", "medteb/mar-0.3b-8b"])
def test_the_hub_is_not_asked_for_a_name_of_this_project(entry, name, online):
    with pytest.raises(MarError):
        ENTRIES[entry](name)


@pytest.mark.parametrize("entry", ["MAR.from_pretrained", "check_source", "fetch", "load_query_encoder"])
def test_the_hub_is_asked_for_other_names(entry, online):
    with pytest.raises(Asked, match="huggingface"):
        ENTRIES[entry]("some-organisation/some-model")


def test_the_hub_is_not_asked_for_a_data_set_of_this_project(online):
    with pytest.raises(ValueError, match="this project's own"):
        hub_dataset("hub:medteb/MedTEBRetrieval")
    with pytest.raises(Asked, match="huggingface"):
        hub_dataset("hub:some-organisation/some-data")


@pytest.mark.parametrize("name", ["mar-mini", "medteb/mar-mini"])
def test_the_packaged_model_answers_to_both_names(name, online):
    texts = ["头疼吃什么药"]
    expected = MAR.from_pretrained(packaged_folder(), device="cpu").encode_queries(texts)
    for vectors in (
        MAR(name, device="cpu").encode_queries(texts),
        MAR.from_pretrained(name, routes="query", device="cpu").encode_queries(texts),
        load_query_encoder(name).encode(texts, "query"),
    ):
        assert vectors == pytest.approx(expected, abs=1e-6)
    shown = CliRunner().invoke(app, ["info", name])
    assert "hidden_size: 128" in shown.stdout


def test_folders_and_trained_models_come_before_the_hub(tmp_path, monkeypatch):
    assert model_source("some/name") == "some/name"
    (tmp_path / "mar-mini").mkdir()
    assert model_folder("mar-mini").resolve() == tmp_path / "mar-mini"
    home = tmp_path / "home" / "mar-0.3b-4b"
    home.mkdir(parents=True)
    monkeypatch.setenv("MAR_HOME", str(home.parent))
    with pytest.raises(MarError, match=r"not on this machine .*mar train mar-0\.3b-4b.*CARE-0\.3B-4B"):
        model_folder("mar-0.3b-4b")
    (home / "modules.json").write_text("[]")
    assert model_folder("medteb/mar-0.3b-4b") == home
