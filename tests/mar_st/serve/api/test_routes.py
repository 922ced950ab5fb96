"""Tests of the routes: status, models, information, reloading, and paths that do not exist."""

from __future__ import annotations

import asyncio
import shutil

import httpx
import pytest

from mar_st.index import delete
from mar_st.serve import ServeSettings, create_app
from tests.mar_st.serve.fakes import DIM, DOCUMENTS, FakeDocumentEncoder, FakeEncoder

KEY = {"x-api-key": "a-key-of-enough-characters"}


def test_probes_models_and_info_are_answered(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    client.app.state.ready = False
    assert client.get("/readyz").status_code == 503
    assert client.get("/v1/models").json()["data"][0]["id"] == "fake"
    info = client.get("/info").json()
    assert (info["documents"], info["dim"], info["hybrid"], info["rerank"]) == (
        len(DOCUMENTS),
        DIM,
        True,
        False,
    )
    assert info["fields"] == {"department": "string", "year": "integer"}


def test_model_names_may_contain_a_slash(make_client):
    client = make_client(documents=FakeDocumentEncoder(), model_name="medteb/mar-mini")
    assert client.get("/v1/models/medteb/mar-mini-document").json()["id"] == "medteb/mar-mini-document"
    assert client.get("/v1/models/medteb%2Fmar-mini").json()["id"] == "medteb/mar-mini"


@pytest.mark.parametrize(
    ("documents", "types", "models"),
    [(None, ["query"], ["fake"]), (True, ["query", "document"], ["fake", "fake-document"])],
)
def test_the_information_names_the_sides_that_are_encoded(make_client, documents, types, models):
    client = make_client(documents=documents and FakeDocumentEncoder(), model_name="fake")
    assert client.get("/info").json()["input_types"] == types
    assert [entry["id"] for entry in client.get("/v1/models").json()["data"]] == models


@pytest.mark.parametrize("path", ["/search/", "/v1/embeddings/", "/info/", "/healthz/", "/docs/"])
def test_a_path_with_a_slash_at_its_end_is_not_redirected(client, path):
    """Behind a proxy with TLS the redirect would lead to http, and the client send its query there."""
    for answer in (client.get(path), client.post(path, {"query": "头疼"})):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_such_path")
        assert "location" not in answer.headers


def test_an_open_index_cannot_be_reloaded_and_still_answers(make_client):
    client = make_client(api_keys=[KEY["x-api-key"]])
    refused = client.post("/admin/reload", {}, headers=KEY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_reloaded")
    assert client.post("/search", {"query": "头疼"}, headers=KEY).status_code == 200


def test_reloading_shows_changes_and_keeps_the_old_index_if_the_new_one_is_damaged(index, tmp_path):
    index = shutil.copytree(index, tmp_path / "index")

    async def run():
        app = create_app(
            index, ServeSettings(api_keys=[KEY["x-api-key"]], model_name="fake"), encoder=FakeEncoder()
        )
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=KEY) as client:

            async def state():
                info = (await client.get("/info")).json()
                return info["documents"], info["generation"]

            assert await state() == (6, 1)
            delete(index, ["d0"])
            assert await state() == (6, 1)
            reloaded = await client.post("/admin/reload", json={})
            assert reloaded.json() == {"documents": 5}
            assert await state() == (5, 2)
            (index / "manifest.json").write_text("{", encoding="utf-8")
            refused = await client.post("/admin/reload", json={})
            assert refused.status_code == 409
            assert refused.json()["error"]["message"].startswith("The old index still answers. ")
            assert await state() == (5, 2)
            assert (await client.post("/search", json={"query": "头疼"})).status_code == 200
        await app.state.generations.close()

    asyncio.run(run())
