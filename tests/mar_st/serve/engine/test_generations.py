"""Swapping an index while it is used."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import threading
import weakref
from pathlib import Path

import pytest

from mar_st.errors import MarError
from mar_st.serve import ServeSettings, create_app
from mar_st.serve.engine.fleet import Fleet, WorkerReport
from mar_st.serve.engine.generations import stamp
from tests.mar_st.conftest import save_cross_encoder
from tests.mar_st.serve.conftest import Client
from tests.mar_st.serve.fakes import DOCUMENTS, FakeDocumentEncoder, FakeEncoder, FakeSearcher, vector_of
from tests.mar_st.serve.servers import make_index


def test_the_old_index_answers_accepted_requests_and_is_then_closed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        make_index(tmp_path / name, DOCUMENTS, name)
    place = tmp_path / "current"
    place.symlink_to(tmp_path / "a" / "index")
    encoder = FakeEncoder()
    app = create_app(place, ServeSettings(), encoder=encoder)
    generations = app.state.generations
    old = generations.current

    async def play():
        encoder.gate = threading.Event()
        early = asyncio.create_task(Client(app).many(("POST", "/search", {"json": {"query": "头疼"}})))
        await asyncio.sleep(0.3)  # it waits in the old engine
        place.unlink()
        place.symlink_to(tmp_path / "b" / "index")
        assert generations.changed()
        threading.Timer(0.3, encoder.gate.set).start()
        await generations.reload()
        assert generations.current is not old
        assert not generations.changed()
        late = await Client(app).many(("POST", "/search", {"json": {"query": "头疼"}}))
        first = await early
        await generations.close()
        return first[0].json()["hits"][0]["id"], late[0].json()["hits"][0]["id"]

    names = asyncio.run(play())
    assert (names[0][0], names[1][0]) == ("a", "b")
    assert not any(lane._thread.is_alive() for lane in (old.stage.small, old.stage.large))
    with pytest.raises(MarError):
        old.encoding.batcher.submit(["x"])


@pytest.fixture
def thawed():
    """Objects that a test freezes are collected again."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_the_first_searcher_is_freed_after_a_reload_although_it_was_frozen(tmp_path):
    app = create_app(make_index(tmp_path, DOCUMENTS), ServeSettings(), encoder=FakeEncoder())
    generations = app.state.generations
    gc.freeze()
    first = weakref.ref(generations.current.searcher)

    async def play():
        await generations.reload()
        await generations.close()

    asyncio.run(play())
    assert first() is None
    assert gc.get_freeze_count()


def test_links_in_a_circle_have_a_stamp(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert stamp(tmp_path / "a") == str(tmp_path / "a")


def test_bm25_is_warmed_up_before_the_first_request():
    searcher = FakeSearcher(DOCUMENTS, FakeEncoder())
    create_app(searcher, ServeSettings()).state.generations.current.close()
    assert searcher.index.warmed
    bare = FakeSearcher(DOCUMENTS, FakeEncoder(), words=False)
    create_app(bare, ServeSettings()).state.generations.current.close()
    assert not hasattr(bare.index, "warmed")


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return str(save_cross_encoder(tmp_path_factory.mktemp("cross-encoder") / "model", 1))


def test_a_server_with_a_reranker_reranks_on_request_and_keeps_it_when_it_reloads(tmp_path, cross_encoder):
    place = make_index(tmp_path, DOCUMENTS)
    keys = {"api_keys": ("a-key-of-enough-characters",)}
    app = create_app(place, ServeSettings(reranker=cross_encoder, **keys), encoder=FakeEncoder())
    generations = app.state.generations
    reranker = generations.current.searcher.reranker
    assert reranker._model is not None  # loaded before the first request
    client = Client(app)
    headers = {"x-api-key": "a-key-of-enough-characters"}
    first = client.post("/search", {"query": "头疼", "k": 3, "rerank": 2}, headers=headers).json()["hits"]
    assert ["rerank" in hit["legs"] for hit in first] == [True, True, False]
    plain = client.post("/search", {"query": "头疼", "k": 3}, headers=headers).json()["hits"]
    assert [list(hit["legs"]) for hit in plain] == [["dense"]] * 3
    assert client.post("/admin/reload", {}, headers=headers).status_code == 200
    assert generations.current.searcher.reranker is reranker
    os.utime(Path(cross_encoder) / "config.json")
    assert client.post("/admin/reload", {}, headers=headers).status_code == 200
    assert generations.current.searcher.reranker is not reranker
    again = client.post("/search", {"query": "头疼", "k": 3, "rerank": 2}, headers=headers).json()["hits"]
    assert again == first
    generations.current.close()


def test_a_reranker_that_cannot_be_opened_is_refused_at_the_start(tmp_path):
    place = make_index(tmp_path, DOCUMENTS)
    with pytest.raises(MarError, match="nothing"):
        create_app(place, ServeSettings(reranker=str(tmp_path / "nothing")), encoder=FakeEncoder())


def test_a_folder_that_cannot_be_opened_changes_nothing(tmp_path):
    place = make_index(tmp_path, DOCUMENTS)
    app = create_app(place, ServeSettings(api_keys=("a-key-of-enough-characters",)), encoder=FakeEncoder())
    headers = {"x-api-key": "a-key-of-enough-characters"}
    client = Client(app)
    shutil.move(place, tmp_path / "away")
    refused = client.post("/admin/reload", {}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_reloaded")
    assert client.post("/search", {"query": "头疼"}, headers=headers).status_code == 200
    metrics = client.get("/metrics", headers=headers).text
    assert 'mar_reloads_total{result="failed"} 1.0' in metrics
    shutil.move(tmp_path / "away", place)
    response = client.post("/admin/reload", {}, headers=headers)
    assert response.json() == {"documents": len(DOCUMENTS)}
    app.state.generations.current.close()


def test_an_encoder_of_another_space_is_refused(tmp_path):
    place = make_index(tmp_path, DOCUMENTS)

    class Foreign(FakeEncoder):
        space = "another-space"

    with pytest.raises(MarError, match="space"):
        create_app(place, encoder=Foreign())


class Unlabelled(FakeEncoder):
    """An encoder that does not say to which space its vectors belong."""

    space = ""


@pytest.mark.filterwarnings("ignore:The .* does not say which document space")
@pytest.mark.parametrize(
    ("encoder", "documents", "space", "reason"),
    [
        (FakeEncoder(), None, "other-space", "query encoder belongs to another document space"),
        (Unlabelled(), None, "other-space", "than those of the index before it .*Replace the encoder, too"),
        (None, FakeDocumentEncoder(), "other-space", "document encoder belongs to another document space"),
        (Unlabelled(), FakeDocumentEncoder(), None, None),
        (None, None, "other-space", None),
    ],
)
def test_an_index_of_another_space_than_the_loaded_encoders_is_not_switched_to(
    tmp_path, encoder, documents, space, reason
):
    for name, of_index in (("a", "fake-space"), ("b", space)):
        (tmp_path / name).mkdir()
        make_index(tmp_path / name, DOCUMENTS, name, of_index)
    place = tmp_path / "current"
    place.symlink_to(tmp_path / "a" / "index")
    generations = create_app(place, encoder=encoder, documents=documents).state.generations
    place.unlink()
    place.symlink_to(tmp_path / "b" / "index")

    async def play():
        try:
            if reason is None:
                await generations.reload()
            else:
                with pytest.raises(MarError, match=reason):
                    await generations.reload()
            return generations.current.searcher.index.search(vector_of(DOCUMENTS[0])[None], 1)[0]
        finally:
            await generations.close()

    assert asyncio.run(play()) == [["a0" if reason else "b0"]]


def test_a_fleet_waits_for_all_live_workers(tmp_path):
    import os

    fleet = Fleet(tmp_path)
    assert fleet.wanted == 0
    assert [fleet.raise_wanted() for _ in range(3)] == [1, 2, 3]
    fleet.report(WorkerReport(os.getpid(), 2, True, 5))
    fleet.report(WorkerReport(2**22 + 1, 0, True, 5))  # no such process
    with pytest.raises(MarError, match=str(os.getpid())):
        asyncio.run(fleet.settled(3, 0.2))
    fleet.report(WorkerReport(os.getpid(), 3, False, 5, "broken"))
    assert [report.message for report in asyncio.run(fleet.settled(3, 0.2))] == ["broken"]
    fleet.forget(os.getpid())
    assert fleet.reports() == []
