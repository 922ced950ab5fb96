"""Tests of the import of optional packages."""

from __future__ import annotations

import sys

import pytest

from mar_st.errors import MarError
from mar_st.index.errors import need


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("faiss", "index"),
        ("pyarrow.compute", "index"),
        ("pymilvus", "scale"),
        ("milvus_lite.server_manager", "scale"),
    ],
)
def test_a_missing_package_is_one_error_with_the_command_that_installs_it(monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    monkeypatch.setitem(sys.modules, package, None)
    name = package.partition(".")[0]
    with pytest.raises(MarError, match=rf"needs the package {name} .*pip install 'medteb\[{extra}\]'"):
        need(package)


def test_a_package_is_imported_with_its_submodule():
    assert need("pyarrow.compute") is sys.modules["pyarrow.compute"]
