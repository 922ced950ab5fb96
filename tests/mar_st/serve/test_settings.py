"""Settings of a server: impossible and unsafe ones are refused before it listens."""

from __future__ import annotations

import pytest

from mar_st.serve.app import create_app
from mar_st.serve.settings import ServeError, ServeSettings, is_loopback
from tests.mar_st.serve.fakes import FakeEncoder

KEY = "first-key-0123456789"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "search.example", "127.0.0.1.example", "0"])
def test_a_host_that_others_reach_needs_keys(host):
    with pytest.raises(ServeError, match="--api-keys"):
        ServeSettings(host=host)
    assert ServeSettings(host=host, api_keys=(KEY,)).host == host
    assert ServeSettings(host=host, insecure=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost", "LocalHost"])
def test_a_loopback_host_needs_no_keys(host):
    assert is_loopback(ServeSettings(host=host).host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "[::1]",
        "unix:/run/mar.sock",
        "300.1.1.1",
        "1.2.3.4.5",
        "localhost:80",
        "http://a",
        "a b",
        "*",
        "١.١",
    ],
)
@pytest.mark.parametrize("safe", [{}, {"insecure": True}, {"api_keys": (KEY,)}])
def test_what_is_neither_a_name_nor_an_address_is_refused_as_such(host, safe):
    with pytest.raises(
        ServeError, match="--host takes a name or an address without scheme, brackets and port"
    ):
        ServeSettings(host=host, **safe)


@pytest.mark.parametrize("host", ["127.1", "fe80::1%eth0", "::ffff:127.0.0.1", "a_b.example", "诊所.example"])
def test_unusual_names_and_addresses_are_allowed(host):
    assert ServeSettings(host=host, insecure=True).host == host


@pytest.mark.parametrize(
    ("settings", "allowed", "refused"),
    [
        ({}, ["localhost", "127.0.0.1", "::1"], ["search.example", ""]),
        ({"host": "127.0.0.2"}, ["127.0.0.2", "localhost"], ["127.0.0.3"]),
        ({"allow_hosts": ("Search.Example",)}, ["search.example", "localhost"], ["example"]),
        ({"allow_hosts": ("a.example",), "api_keys": (KEY,)}, ["a.example", "localhost"], ["b.example"]),
        ({"allow_hosts": ("a.example",), "insecure": True}, ["a.example"], ["b.example"]),
        ({"allow_hosts": ("[FE80::1]", "fe80::2"), "insecure": True}, ["fe80::1", "fe80::2"], ["[fe80::1]"]),
    ],
)
def test_only_local_and_allowed_names_may_address_a_server(settings, allowed, refused):
    hosts = ServeSettings(**settings).hosts
    assert set(allowed) <= hosts
    assert not set(refused) & hosts


@pytest.mark.parametrize(
    "settings", [{"api_keys": (KEY,)}, {"insecure": True}, {"allow_hosts": ("*", "a.example")}]
)
def test_with_keys_or_a_star_any_name_may_address_a_server(settings):
    assert ServeSettings(**settings).hosts is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"max_k": 0},
        {"max_batch_tokens": 0},
        {"max_queue": 0},
        {"threads": 0},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"keep_alive": float("inf")},
        {"shutdown_timeout": -1},
        {"port": 70000},
        {"port": -1},
    ],
)
def test_impossible_settings_are_refused_by_their_names(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ServeError, match=rf"{name} is .+; got {value}\."):
        ServeSettings(**wrong)


@pytest.mark.parametrize(
    "name", ["a.example:8000", "http://a.example", "a.example/", "a b", "", "[::1]:80", "u@a", "*.a.example"]
)
def test_a_host_that_no_request_could_match_is_refused(name):
    with pytest.raises(ServeError, match="--allow-host takes a name or an address without scheme and port"):
        ServeSettings(allow_hosts=("a.example", name))


def test_keys_do_not_show_in_the_settings():
    assert KEY not in repr(ServeSettings(api_keys=(KEY,)))


def test_a_model_is_not_named_after_a_folder_whose_name_is_not_utf_8():
    with pytest.raises(ServeError, match=r"'\\udcff模型', cannot be written as UTF-8.* Give another --name"):
        ServeSettings(model_name="\udcff模型")


def test_a_server_does_not_start_under_a_name_that_no_response_could_hold(index, tmp_path, monkeypatch):
    folder = tmp_path / "\udcff"
    monkeypatch.setattr("mar_st.serve.engine.generations.load_query_encoder", lambda *_, **__: FakeEncoder())
    with pytest.raises(ServeError, match="Give another --name"):
        create_app(index, encoder=folder)
    app = create_app(index, ServeSettings(model_name="模型"), encoder=folder)
    app.state.generations.current.close()
