"""Tests that a server uses the named query encoder and reports its name."""

from __future__ import annotations

import pytest

from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.index import Searcher, build_index, tune_effort
from mar_st.index.manifest import read_manifest
from mar_st.model.space import space_of
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.serve import ServeSettings, create_app
from mar_st.serve.settings import ServeError
from mar_st.text.texts import join_document
from tests.mar_st.lookup.conftest import DOCUMENTS, family, fitted, make_texts, teach, texts, vectors  # noqa: F401
from tests.mar_st.serve.conftest import Client
from tests.mar_st.serve.fakes import FakeEncoder, FakeSearcher

QUERY = "头疼吃什么药"


@pytest.fixture(scope="module")
def place(family, tmp_path_factory):  # noqa: F811
    """A graph over documents of the family's space; it names the family as its model."""
    root = tmp_path_factory.mktemp("place")
    drawn = [*map(join_document, DOCUMENTS), *make_texts(300, seed=4)]
    write_vectors(
        root / "vectors", [f"d{row}" for row in range(len(drawn))], teach(drawn), texts=drawn,
        space=space_of(family / "mar"), model=str(family / "mar"),
    )  # fmt: skip
    build_index(root / "vectors", root / "index", kind="hnsw", params={"M": 4}, progress=False)
    return root / "index"


@pytest.fixture
def start():
    apps = []

    def make(*arguments, **settings):
        encoder = settings.pop("encoder", None)
        app = create_app(*arguments, ServeSettings(**settings), encoder=encoder)
        apps.append(app)
        return app

    yield make
    for app in apps:
        app.state.generations.current.close()


def hits(client, query=QUERY):
    response = client.post("/search", {"query": query, "k": 5, "truncate": True})
    assert response.status_code == 200, response.text
    return [hit["id"] for hit in response.json()["hits"]]


def test_the_encoder_that_is_named_answers(place, family, start):  # noqa: F811
    tuned = tune_effort(place, make_texts(50, seed=9), query="query-lookup", target=1.0)["search"]
    built = read_manifest(place)["search"]
    assert tuned != built
    # Without an encoder: of the model that encoded the documents.
    app = start(place, query="query-lookup")
    engine = app.state.generations.current
    assert isinstance(engine.encoding.encoder, NumpyLookupEncoder)
    client = Client(app)
    expected = Searcher.open(place, family / "mar", query="query-lookup").search([QUERY], 5)[0]
    assert hits(client) == [hit.id for hit in expected]
    info = client.get("/info").json()
    assert (info["model"], info["query_encoder"], info["effort"]) == ("mar", "query-lookup", tuned)
    (entry,) = client.get("/v1/models").json()["data"]
    assert (entry["id"], entry["query_encoder"]) == ("mar", "query-lookup")
    assert client.get("/v1/models/mar").json() == entry
    assert 'mar_query_encoder{model="mar",query_encoder="query-lookup"} 1.0' in client.get("/metrics").text

    other = Client(start(place, encoder=family / "mar", query="query", model_name="family"))
    assert other.get("/info").json()["effort"] == built
    assert other.get("/v1/models").json()["data"][0]["query_encoder"] == "query"
    default = Client(start(place, encoder=str(family / "mar")))
    assert default.get("/info").json()["query_encoder"] == "query"
    assert hits(default) == hits(other) != hits(client)


def test_the_document_model_lists_no_query_encoder(make_client):
    encoder = FakeEncoder()
    encoder.query = "query-2"
    client = make_client(FakeSearcher(["头疼"], encoder), documents=FakeEncoder(), model_name="fake")
    entries = {entry["id"]: entry.get("query_encoder") for entry in client.get("/v1/models").json()["data"]}
    assert entries == {"fake": "query-2", "fake-document": None}


def test_an_encoder_without_a_name_is_listed_without_one(client):
    assert "query_encoder" not in client.get("/v1/models").json()["data"][0]
    assert client.get("/info").json()["query_encoder"] is None
    assert 'mar_query_encoder{model="fake",query_encoder=""} 1.0' in client.get("/metrics").text


def test_an_unusable_encoder_name_is_one_clear_error(place, family, start):  # noqa: F811
    with pytest.raises(MarError, match="no query encoder 'query-9'; it has query, query-lookup"):
        start(place, query="query-9")
    with pytest.raises(MarError, match="no query encoder ''"):  # such as that of an unset variable
        start(place, query="")
    with pytest.raises(ServeError, match="open already"):
        start(place, encoder=FakeEncoder(), query="query-lookup")
    with pytest.raises(ServeError, match="open already"):
        start(FakeSearcher(["头疼"], FakeEncoder()), query="query-lookup")
