from __future__ import annotations

import json

import pytest

from medteb_mteb.folders import FolderError, inspect_folder
from medteb_mteb.folders.languages import eval_languages


def languages(folder, **header):
    (folder / "README.md").write_text(f"---\n{json.dumps(header)}\n---\n")
    return eval_languages(inspect_folder(folder))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pl", "pol-Latn"),
        ("nld", "nld-Latn"),
        ("en-US", "eng-Latn"),
        ("zh_CN", "cmn-Hans"),
        ("sr-Latn", "srp-Latn"),
        ("cmn-Hant", "cmn-Hant"),
        (False, "nor-Latn"),  # `no` in YAML
        ("multilingual", "und-Zyyy"),
    ],
)
def test_any_language_of_a_hub_card_is_taken(make_folder, code, expected):
    assert languages(make_folder("STS"), language=code) == [expected]


def test_several_languages_are_listed_once_each(make_folder):
    stated = ["en", "en-GB", "multilingual", "code", "pl"]
    assert languages(make_folder("STS"), language=stated) == ["eng-Latn", "und-Zyyy", "pol-Latn"]


def test_a_tasks_own_settings_name_known_languages(make_folder):
    assert languages(make_folder("STS"), language="multilingual", medteb={"languages": "pl"}) == ["pol-Latn"]
    with pytest.raises(FolderError, match="unknown language 'multilingual'"):
        languages(make_folder("STS"), medteb={"languages": "multilingual"})
