from __future__ import annotations

import pytest

from mar_st.files.packages import PackageError, load_package, need_packages


def test_missing_packages_are_named_with_their_extra():
    need_packages("json", "email.message", extra="train", purpose="This")
    with pytest.raises(
        PackageError, match=r"^Export needs the package no_such_one\. Install: pip install 'medteb\[export\]'"
    ):
        need_packages("json", "no_such_one", extra="export", purpose="Export")
    with pytest.raises(PackageError, match="needs the packages no_such_one, no_such_other"):
        need_packages("no_such_one", "no_such_other", extra="x", purpose="Export")


def test_a_package_is_not_imported(monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, "colorsys", raising=False)
    need_packages("colorsys", extra="x", purpose="This")
    assert "colorsys" not in __import__("sys").modules


def test_a_package_is_loaded_or_named_with_its_extra():
    assert load_package("json.decoder", extra="x").__name__ == "json.decoder"
    with pytest.raises(PackageError, match=r"^This needs the package no_such_one .*'medteb\[train\]'$"):
        load_package("no_such_one.part", extra="train")
