"""Settings and keys that are refused before anything is opened."""

from __future__ import annotations

import sys

import pytest

from mar_st.cli import main
from mar_st.errors import MarError
from mar_st.serve import ServeSettings
from mar_st.serve.guard import Keys, allowed_hosts
from tests.mar_st.serve.fakes import KEY


@pytest.fixture
def keys_file(tmp_path):
    def write(content, mode=0o600):
        file = tmp_path / "keys"
        file.write_text(content, encoding="utf-8")
        file.chmod(mode)
        return file

    return write


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        ("# nothing\n", 0o600, "no key"),
        (KEY, 0o644, "chmod 600"),
        ("short", 0o600, "at least 16"),
        (KEY + "密", 0o600, "printable"),
        ("two words of a key", 0o600, "spaces"),
    ],
)
def test_a_file_of_unusable_keys_is_refused(keys_file, content, mode, reason):
    with pytest.raises(MarError, match=reason) as error:
        Keys(keys_file(content, mode))
    assert content not in str(error.value)


def test_keys_are_read_again_and_stay_on_an_error(keys_file, tmp_path):
    keys = Keys(keys_file(KEY))
    keys_file(f"{KEY}-new")
    keys.read()
    assert keys.admit({b"x-api-key": f"{KEY}-new".encode()})
    assert not keys.admit({b"x-api-key": KEY.encode()})
    keys_file("short")
    with pytest.raises(MarError):
        keys.read()
    assert keys.admit({b"x-api-key": f"{KEY}-new".encode()})
    with pytest.raises(MarError, match="cannot be read"):
        Keys(tmp_path / "nix")


def test_an_empty_variable_is_not_taken_for_no_keys(monkeypatch):
    monkeypatch.setenv("MAR_API_KEYS", " ")
    with pytest.raises(MarError, match="holds no key"):
        Keys(None)


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({}, {"127.0.0.1", "::1", "localhost"}),
        ({"host": "127.0.0.2"}, {"127.0.0.1", "::1", "localhost", "127.0.0.2"}),
        ({"host": "0.0.0.0"}, ...),
        ({"host": "search.example.org"}, ...),
    ],
)
def test_an_address_that_others_can_reach_needs_keys(monkeypatch, settings, hosts):
    monkeypatch.delenv("MAR_API_KEYS", raising=False)
    given = ServeSettings(**settings)
    if hosts is ...:
        with pytest.raises(MarError, match="--api-keys"):
            allowed_hosts(given, Keys(None))
    else:
        assert allowed_hosts(given, Keys(None)) == hosts


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere"],
        ["nowhere", "--host", "0.0.0.0"],
        ["nowhere", "--api-keys", "nofile"],
        ["nowhere", "--port", "70000"],
        ["nowhere", "--timeout", "nan"],
        ["nowhere", "--encoder", "./no-model"],
    ],
)
def test_invalid_arguments_are_one_line(monkeypatch, capsys, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAR_API_KEYS", raising=False)
    monkeypatch.setattr(sys, "argv", ["mar", "serve", "--port", "0", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert len([line for line in error.splitlines() if line.startswith("mar: error:")]) == 1
