"""Optional packages: imported late, without telemetry, or one error that says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mar_st.files.packages import PackageError
from mar_st.online.packages import optional


def test_a_package_is_imported_with_its_submodule():
    assert optional("json.decoder").__name__ == "json.decoder"


@pytest.mark.parametrize(("extra", "advice"), [(None, "medteb[online]"), ("export", "medteb[export]")])
def test_a_missing_package_is_one_error_with_its_extra(extra, advice):
    options = () if extra is None else (extra,)
    with pytest.raises(PackageError, match=r"needs the package no_such_package .*pip install") as raised:
        optional("no_such_package.part", *options)
    assert advice in str(raised.value)


def test_telemetry_cannot_be_imported_afterwards():
    code = """if True:
        from mar_st.online.packages import optional
        optional("json")
        try:
            import openvino_telemetry
        except ImportError:
            print("no telemetry")
    """
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "no telemetry\n"
