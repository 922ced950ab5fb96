from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.teachers.endpoint import EndpointTeacher
from mar_st.teachers.store import TeacherStore
from tests.mar_st.teachers.endpoint import TEXTS, live, serving

pytest.importorskip("openai", reason="the openai client is not installed")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("mar_st.teachers.endpoint.BATCH_TEXTS", 8)
    monkeypatch.setattr("mar_st.teachers.endpoint.WORKERS", 1)
    with serving() as fake:
        yield fake


def _teacher(server, root, **options):
    return EndpointTeacher.parse(f"openai:embed@{server.url}", root, **options)


def test_vectors_are_bought_once(server, tmp_path):
    vectors = _teacher(server, tmp_path).vectors([*TEXTS, TEXTS[0]], "document")
    np.testing.assert_allclose(np.asarray(vectors), live([*TEXTS, TEXTS[0]]), rtol=1e-6)
    assert server.requests == 5
    again = _teacher(server, tmp_path).vectors(TEXTS[::-1], "query")
    np.testing.assert_allclose(np.asarray(again), live(TEXTS[::-1]), rtol=1e-6)
    more = _teacher(server, tmp_path).vectors([*TEXTS, "新"], "document")
    np.testing.assert_allclose(more[40], live(["新"])[0], rtol=1e-6)
    assert sorted(server.sold) == sorted([*TEXTS, "新"])


def test_a_failure_keeps_finished_shards(server, tmp_path):
    server.failures = {3: (400, "this text is too long")}
    teacher = _teacher(server, tmp_path)
    teacher.store = TeacherStore(tmp_path, shard=16)
    with pytest.raises(MarError, match=r"status 400.*too long"):
        teacher.vectors(TEXTS, "document")
    kept = len(server.sold)
    assert 16 <= kept < len(TEXTS)
    server.failures = {}
    np.testing.assert_allclose(np.asarray(teacher.vectors(TEXTS, "document")), live(TEXTS), rtol=1e-6)
    assert len(server.sold) - kept == len(TEXTS) - 16


@pytest.mark.thorough
def test_temporary_failures_are_retried(server, tmp_path):
    server.failures = {2: (503, "busy"), 3: (429, "slow down")}
    vectors = _teacher(server, tmp_path).vectors(TEXTS, "document")
    np.testing.assert_allclose(np.asarray(vectors), live(TEXTS), rtol=1e-6)
    assert server.requests == 7
    assert sorted(server.sold) == sorted(TEXTS)


def test_several_requests_at_once_give_the_same(server, tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.teachers.endpoint.WORKERS", 4)
    teacher = EndpointTeacher("embed", server.url, tmp_path)
    np.testing.assert_allclose(np.asarray(teacher.vectors(TEXTS, "document")), live(TEXTS), rtol=1e-6)
    assert sorted(server.sold) == sorted(TEXTS)


def test_prompts_are_sent_and_told_apart(server, tmp_path):
    teacher = _teacher(server, tmp_path, prompts={"query": "查："})
    teacher.vectors(TEXTS[:2], "query")
    teacher.vectors(TEXTS[:2], "document")
    assert sorted(server.sold) == ["文本0", "文本1", "查：文本0", "查：文本1"]
    assert teacher.identity("query") != teacher.identity("document")


def test_the_key_comes_from_the_environment_and_is_written_nowhere(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MAR_ENDPOINT_KEY", "secret-key-123")
    teacher = _teacher(server, tmp_path)
    teacher.vectors(TEXTS, "document")
    assert set(server.keys) == {"Bearer secret-key-123"}
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"secret-key-123" not in path.read_bytes()
    assert "secret" not in json.dumps(teacher.identity("query"))


def test_the_key_and_names_for_openai_are_sent_to_no_other_address(server, tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "secret-key-123")
    monkeypatch.delenv("MAR_ENDPOINT_KEY", raising=False)
    _teacher(server, tmp_path).vectors(TEXTS, "document")
    assert set(server.keys) == {"Bearer none"}
    assert not any("secret-key-123" in value for headers in server.headers for value in headers.values())
    for host in ("example.invalid", "api.openai.com.example.invalid"):
        with pytest.raises(MarError, match="Set MAR_ENDPOINT_KEY"):
            EndpointTeacher("m", f"https://{host}/v1", tmp_path).vectors(["头疼"], "query")


def test_vectors_of_a_changed_width_are_refused(server, tmp_path):
    _teacher(server, tmp_path).vectors(TEXTS[:8], "document")
    server.dim = 3
    with pytest.raises(MarError, match="it has changed"):
        _teacher(server, tmp_path).vectors(TEXTS, "document")


@pytest.mark.parametrize("status", [302, 308])
def test_texts_are_not_sent_to_the_target_of_a_redirect(server, tmp_path, status):
    with serving() as other:
        server.failures, server.location = {1: (status, "moved")}, f"{other.url}/embeddings"
        with pytest.raises(MarError, match=rf"redirect to {other.url}/embeddings"):
            _teacher(server, tmp_path).vectors(TEXTS, "document")
    assert other.requests == 0


def _answer(*entries):
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in entries]
    return json.dumps({"object": "list", "data": data}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>", b'{"error": {"message": "quota"}}', b'{"data": null}',
        _answer((0, [1.0])), _answer((1, [1.0]), (2, [2.0])), _answer((0, [1.0]), (1, [2.0, 3.0])),
        _answer((0, {"a": 1}), (1, {"a": 1})), _answer((0, [float("nan")]), (1, [1.0])),
    ],
)  # fmt: skip
def test_answers_without_one_vector_per_text_are_refused_and_leave_no_trace(server, tmp_path, body):
    server.bodies.append(body)
    with pytest.raises(MarError, match=f"^{server.url} "):
        _teacher(server, tmp_path).vectors(TEXTS[:2], "document")
    server.bodies.clear()
    vectors = _teacher(server, tmp_path).vectors(TEXTS[:2], "document")
    np.testing.assert_allclose(np.asarray(vectors), live(TEXTS[:2]), rtol=1e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("openai:embed", "names no model and address"),
        ("openai:@http://localhost", "names no model"),
        ("openai:embed@http://", "names no model and address"),
        ("openai:embed@http://me:pass@localhost/v1", "Leave user and password out"),
    ],
)
def test_bad_addresses_are_refused(spec, message, tmp_path):
    with pytest.raises(MarError, match=message):
        EndpointTeacher.parse(spec, tmp_path)


def test_a_model_may_have_an_at_sign(tmp_path):
    teacher = EndpointTeacher.parse("openai:org/embed@v2@http://localhost:1/v1/", tmp_path)
    assert (teacher.model, teacher.base_url) == ("org/embed@v2", "http://localhost:1/v1")
