from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm import LLM, load_llm

ENTRY = {"name": "writer", "model": "m", "base_url": "http://127.0.0.1:1/v1"}


def test_an_llm_is_read_from_a_file(tmp_path):
    file = tmp_path / "llm.yaml"
    file.write_text(
        "llm:\n  name: writer\n  model: qwen\n  base_url: http://localhost:8000/v1/\n  temperature: 0.7\n"
    )
    llm = load_llm(file)
    assert (llm.name, llm.base_url, llm.local, llm.key()) == (
        "writer", "http://localhost:8000/v1", True, "none",
    )  # fmt: skip
    assert llm.settings("v1") == {
        "model": "qwen", "variant": "", "prompt": "v1", "temperature": 0.7, "extra": {},
    }  # fmt: skip
    assert LLM(**ENTRY, price_in=2.0, price_out=8.0).cost(1_000_000, 500_000) == 6.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llm: {name: a}", r"llm.model: Field required"),
        ("llm: {name: a, model: m, base_url: nowhere}", "llm.base_url: no address"),
        ("llm: {name: a, model: m, base_url: 'http://h', tmperature: 1}", "llm.tmperature"),
        ("llm: {name: a, model: m, base_url: 'http://h', passages: 3}", "llm.passages"),
        ("llm: {name: a, model: m, base_url: 'http://h', budget: 3}", "price_in or price_out"),
        ("llm: {name: a, model: m, base_url: 'http://h', price_in: .inf}", "llm.price_in.*finite"),
        ("llm: {name: a, model: m, base_url: 'http://h', extra: {n: 2}}", "'n' is set by the step itself"),
        ("llm: {name: a, model: m, base_url: 'https://me:pw@h/v1'}", "leave user, password"),
        (
            "llm: {name: a, model: m, base_url: 'https://h/v1/chat/completions/'}",
            "llm.base_url: leave the final /chat/completions out",
        ),
        ("llm: {name: a, model: m, base_url: 'http://h'}\njudges: []", "judges: Extra inputs"),
        ("llms: []", "llm: Field required"),
        ("- a", "must be a mapping with 'llm'"),
        ("llm: [", "is not valid YAML"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path, text, message):
    file = tmp_path / "llm.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BuildError, match=message) as error:
        load_llm(file)
    assert "pw" not in str(error.value)
    with pytest.raises(BuildError, match="cannot be read"):
        load_llm(tmp_path / "none.yaml")


def test_a_key_comes_from_the_environment_alone(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    far = LLM(**ENTRY | {"base_url": "https://api.example.com/v1"})
    with pytest.raises(BuildError, match=r"LLM writer names no key for https://api\.example.*api_key_env"):
        far.key()
    assert LLM(**ENTRY).key() == "none"
    with pytest.raises(BuildError, match="LLM writer: set MINE"):
        LLM(**ENTRY, api_key_env="MINE").key()
    monkeypatch.setenv("MINE", "sk-1")
    assert LLM(**ENTRY, api_key_env="MINE").key() == "sk-1"


@pytest.mark.parametrize("value", ["“sk-1”", "sk-1 sk-2", "钥匙", "sk-\u00a01"])
def test_a_value_that_cannot_be_a_key_is_refused_without_being_shown(monkeypatch, value):
    monkeypatch.setenv("MINE", value)
    with pytest.raises(BuildError, match="MINE is not a key") as raised:
        LLM(**ENTRY, api_key_env="MINE").key()
    assert value not in str(raised.value)


def test_white_space_around_a_key_is_removed(monkeypatch):
    monkeypatch.setenv("MINE", "sk-1\r\n")
    assert LLM(**ENTRY, api_key_env="MINE").key() == "sk-1"
