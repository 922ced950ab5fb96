"""Tests of splitting texts into words, and of jieba's dictionary."""

from __future__ import annotations

import marshal
import tempfile

import jieba
import pytest

from mar_st.text import words

TEXT = "高血压患者怎么办，吃阿司匹林100mg"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The folder of the cache, and that for temporary files, in which somebody has put a dictionary."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with (temporary / "jieba.cache").open("wb") as planted:
        marshal.dump(({"患者怎": 10**9, "患者怎么": 10**9}, 10), planted)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    words.segmenter.cache_clear()
    yield tmp_path / "cache" / "medteb", temporary
    words.segmenter.cache_clear()


@pytest.fixture(scope="module")
def expected():
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return [word for word in tokenizer.lcut(TEXT.lower()) if words.normalise(word)]


@pytest.mark.thorough
def test_a_planted_dictionary_is_not_read(folders, expected):
    assert words.words(TEXT) == expected
    kept = folders[0] / "jieba.cache"
    before = kept.stat()
    words.segmenter.cache_clear()
    assert words.words(TEXT) == expected
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
