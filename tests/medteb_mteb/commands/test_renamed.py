"""Errors for former forms of options give the present form."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("args", [("data", "--json", "report.json"), ("--json", "report.json", "data")])
def test_the_file_of_validate_json_is_an_error_that_gives_the_present_form(medteb, args):
    code, out, err = medteb("validate", *args)
    assert (code, out) == (2, "")
    assert err == (
        "medteb: error: 'medteb validate --json' takes no file; it prints JSON: "
        "'medteb validate EDITION --json > FILE'.\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("validate", "data", "more"), "Got unexpected extra argument"),
        (("validate", "--json"), "Missing argument"),
        (("validate", "data", "--json", "--nope"), "No such option: --nope"),
        (("verify", "--json"), "Missing argument"),
    ],
)
def test_other_mistakes_are_explained_by_click(medteb, args, message):
    code, out, err = medteb(*args)
    assert (code, out) == (2, "")
    assert message in err
