from __future__ import annotations

import hmac

import pytest

from mar_st.serve import ServeError, ServeSettings, create_app
from mar_st.serve.api.keys import KeyRing, read_keys
from tests.mar_st.serve.conftest import Client
from tests.mar_st.serve.fakes import DOCUMENTS, FakeEncoder
from tests.mar_st.serve.servers import make_index
from tests.mar_st.serve.sockets import connect

ONE, TWO = "first-key-0123456789", "second-key-0123456789"


def write(tmp_path, text, mode=0o600):
    path = tmp_path / "keys"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_keys_are_read_from_the_file_or_else_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("MAR_API_KEYS", raising=False)
    assert read_keys(None) == ()
    monkeypatch.setenv("MAR_API_KEYS", f"{ONE}, {TWO}")
    assert read_keys(None) == (ONE, TWO)
    assert read_keys(write(tmp_path, f"# ours\n{TWO}\n\n")) == (TWO,)  # the file wins


@pytest.mark.parametrize(
    ("text", "mode", "match"),
    [
        ("", 0o600, "holds no key"),
        ("# nothing\n", 0o600, "holds no key"),
        ("short\n", 0o600, "Key 1"),
        (f"{ONE}\nwith a space in it\n", 0o600, "Key 2"),
        ("密钥密钥密钥密钥密钥密钥密钥密钥密钥\n", 0o600, "Key 1"),
        (f"{ONE}\n", 0o644, "chmod 600"),
    ],
)
def test_unusable_keys_are_refused_without_being_shown(tmp_path, text, mode, match):
    with pytest.raises(ServeError, match=match) as error:
        read_keys(write(tmp_path, text, mode))
    assert ONE not in str(error.value)


def test_a_missing_file_and_an_empty_variable_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ServeError, match="cannot be read"):
        read_keys(tmp_path / "nothing")
    monkeypatch.setenv("MAR_API_KEYS", " ")
    with pytest.raises(ServeError, match="holds no key"):
        read_keys(None)


def test_a_key_ring_admits_its_keys_and_always_compares_all(monkeypatch):
    ring = KeyRing([ONE, TWO])
    assert ring.admits([(b"authorization", f"Bearer {ONE}".encode())])
    assert ring.admits([(b"authorization", f"bearer {TWO}".encode())])
    assert ring.admits([(b"x-api-key", TWO.encode())])
    for shown in (
        b"",
        b"Bearer",
        b"Bearer ",
        ONE.encode(),
        f"Basic {ONE}".encode(),
        f"Bearer {ONE}x".encode(),
    ):
        assert not ring.admits([(b"authorization", shown)])
    assert not ring.admits([])
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or compare(a, b))
    assert ring.admits([(b"x-api-key", ONE.encode())])
    assert len(compared) == 2


@pytest.fixture
def server(lasting):
    return lasting()


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([b"127.0.0.1"], 200),
        ([b"localhost:8000"], 200),
        ([b"[::1]:8000"], 200),
        ([], 400),
        ([b"evil.example"], 400),
        ([b"127.0.0.1", b"evil.example"], 400),
        ([b"127.0.0.1:80@evil.example"], 400),
        ([b"[::1]evil.example"], 400),
        ([b"[127.0.0.1"], 400),
        ([b"127.0.0.1:80:evil.example"], 400),
    ],
)
def test_exactly_one_complete_host_header_is_accepted(server, hosts, status):
    lines = b"".join(b"Host: %s\r\n" % host for host in hosts)
    with connect(server) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\n" + lines + b"\r\n")
        assert one.recv(12) == b"HTTP/1.1 %d" % status


@pytest.mark.parametrize(
    ("target", "status"), [(b"127.0.0.1", 200), (b"[::1]", 200), (b"[::1]:8000", 200), (b"evil.example", 400)]
)
def test_the_host_of_an_absolute_target_is_checked(server, target, status):
    with connect(server) as one:
        one.sendall(b"GET http://%s/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % target)
        assert one.recv(12) == b"HTTP/1.1 %d" % status


def test_a_reload_replaces_the_keys_of_a_file_unless_it_cannot_be_used(tmp_path):
    index = make_index(tmp_path, DOCUMENTS)
    path = write(tmp_path, ONE)
    app = create_app(index, ServeSettings(api_keys=path), encoder=FakeEncoder())
    client = Client(app)

    def reload(key):
        return client.post("/admin/reload", {}, headers={"x-api-key": key})

    def admitted():
        return [
            key for key in (ONE, TWO) if client.get("/info", headers={"x-api-key": key}).status_code == 200
        ]

    write(tmp_path, TWO)
    assert admitted() == [ONE]
    assert reload(ONE).status_code == 200
    assert admitted() == [TWO]
    write(tmp_path, ONE, 0o644)
    refused = reload(TWO)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_reloaded")
    assert "chmod 600" in refused.json()["error"]["message"]
    assert admitted() == [TWO]
    write(tmp_path, ONE)
    index.rename(tmp_path / "away")  # a key that leaked is replaced whatever the state of the index
    assert reload(TWO).status_code == 409
    assert admitted() == [ONE]
    app.state.generations.current.close()
