"""Settings of a task in a data folder: which of card and manifest counts, and which values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from medteb_mteb.editions import Edition
from medteb_mteb.folders import FolderError
from medteb_mteb.folders.settings import FolderSettings, read_settings

FOLDER = Path("clinic")


def edition(**extra):
    return Edition("Clinic", "own", "1", "mit", {}, {}, FOLDER, extra)


def read(declared=None, manifest=None, *, card_first=False, **header):
    if declared is not None:
        header["medteb"] = declared
    return read_settings(FOLDER, header, manifest, card_first)


def test_a_folder_without_card_and_manifest_declares_nothing():
    assert read() == FolderSettings(hub_languages=True)


def test_settings_come_from_the_card():
    declared = {
        "name": "诊所", "type": "Reranking", "prompt": {"query": "问", "document": "答"},
        "main_score": "mrr_at_10", "languages": "zh", "domains": ["Medical"], "description": "Questions.",
    }  # fmt: skip
    assert read(declared, language="en") == FolderSettings(
        **declared | {"languages": ["zh"]}, hub_languages=False
    )


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("zh", ["zh"]),
        (["zh", "en"], ["zh", "en"]),
        (False, ["no"]),
        (["sv", False], ["sv", "no"]),
        (None, []),
    ],
)
def test_the_languages_of_the_hub_count_if_the_settings_name_none(language, expected):
    settings = read({"type": "STS"}, language=language)
    assert (settings.languages, settings.hub_languages) == (expected, True)
    settings = read({"languages": ["de"]}, language=language)
    assert (settings.languages, settings.hub_languages) == (["de"], False)


def test_card_and_manifest_are_joined_where_they_agree():
    manifest = edition(type="STS", prompt="比较", seed=3)
    settings = read({"type": "STS", "description": "Pairs."}, manifest)
    assert (settings.type, settings.prompt, settings.description) == ("STS", "比较", "Pairs.")


@pytest.mark.parametrize("pinned", [{"prompt": "问"}, {}])
def test_a_card_may_not_change_what_the_manifest_pins(pinned):
    with pytest.raises(FolderError, match=r"README\.md: prompt is '答', but manifest\.json says") as caught:
        read({"prompt": "答"}, edition(**pinned))
    assert repr(pinned.get("prompt")) in str(caught.value)
    assert read({"prompt": "答"}, edition(**pinned), card_first=True).prompt == "答"


def test_a_description_that_differs_is_that_of_the_manifest_unless_the_card_comes_first():
    manifest = edition(description="of the manifest")
    assert read({"description": "of the card"}, manifest).description == "of the manifest"
    assert read({"description": "of the card"}, manifest, card_first=True).description == "of the card"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (["STS"], "README.md: 'medteb' must be a mapping with keys among name, type, prompt"),
        ({"score": "x"}, "README.md: 'medteb' must be a mapping with keys among name, type, prompt"),
        ({"type": "sts"}, "README.md: type 'sts' is not one of Retrieval, Reranking, STS"),
        ({"name": 3}, "README.md: name has the wrong type: 3"),
        ({"main_score": ["a"]}, "README.md: main_score has the wrong type: ['a']"),
        ({"languages": [3]}, "README.md: languages has the wrong type: [3]"),
        ({"domains": {"a": 1}}, "README.md: domains has the wrong type: {'a': 1}"),
        ({"prompt": {"passage": "x"}}, "README.md: prompt has the wrong type: {'passage': 'x'}"),
        ({"prompt": {"query": 1}}, "README.md: prompt has the wrong type: {'query': 1}"),
    ],
)
def test_malformed_settings_are_refused(declared, message):
    with pytest.raises(FolderError) as caught:
        read(declared)
    assert message in str(caught.value)


def test_a_malformed_setting_of_the_manifest_is_reported_as_its_own():
    with pytest.raises(FolderError, match=r"manifest\.json: type 'sts' is not one of"):
        read(manifest=edition(type="sts"))
