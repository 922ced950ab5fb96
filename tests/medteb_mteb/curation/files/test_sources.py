"""Sources of texts: their names and licences, as given by users and as found in manifests."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.files.sources import TextSource, merged_sources, parse_source, sources_of

HUATUO = {"name": "huatuo", "licence": "apache-2.0", "url": "https://example.org/huatuo"}
CLINIC = {"name": "clinic", "licence": "unknown"}


@pytest.mark.parametrize(
    ("entry", "name", "licence"),
    [
        ("huatuo=apache-2.0", "huatuo", "apache-2.0"),
        (" 病历 = unknown ", "病历", "unknown"),
        ("a=b=mit", "a=b", "mit"),
        ("trials=https://example.org/terms", "trials", "https://example.org/terms"),
        ("trials=https://example.org/?id=5&v=2", "trials", "https://example.org/?id=5&v=2"),
    ],
)
def test_a_source_is_given_as_name_and_licence(entry, name, licence):
    assert parse_source(entry).to_json() == {"name": name, "licence": licence}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("huatuo", r"takes NAME=LICENCE, for instance huatuo=apache-2\.0; got 'huatuo'"),
        ("huatuo=", "'' is not a licence; give an identifier such as cc-by-4.0"),
        ("huatuo=free to use", "'free to use' is not a licence"),
        ("huatuo=ftp://example.org/terms", "is not a licence"),
        ("huatuo=https://[", "is not a licence"),
        ("=mit", "at least 1 character"),
        ("a\nb=mit", "the name of a source is one line of text"),
        ("a\x1b[2J=mit", "the name of a source is one line of text"),
        (f"{'n' * 201}=mit", "at most 200 characters"),
    ],
)
def test_other_entries_are_refused_with_the_reason(entry, message):
    with pytest.raises(BuildError, match=message):
        parse_source(entry)


@pytest.mark.parametrize("url", ["example.org", "file:///etc/passwd", "https:// x.org", "https://x.org/\n"])
def test_only_web_addresses_are_addresses_of_a_source(url):
    with pytest.raises(ValidationError, match="is not an address; expected one such as https"):
        TextSource(name="a", licence="mit", url=url)


def test_sources_of_several_folders_are_listed_once_by_name():
    assert merged_sources([[HUATUO], [], [CLINIC, HUATUO]]) == [CLINIC, HUATUO]
    assert merged_sources([]) == []


@pytest.mark.parametrize("change", [{"licence": "mit"}, {"url": "https://example.org/other"}])
def test_a_source_with_two_licences_or_addresses_is_refused(change):
    with pytest.raises(BuildError, match=r"The source 'huatuo' is given as .* and as .* Give it one licence"):
        merged_sources([[HUATUO], [HUATUO | change]])


def step(folder, manifest):
    folder.mkdir()
    (folder / "step.json").write_text("{}", encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def test_sources_are_those_of_all_earlier_steps(tmp_path):
    folder = step(tmp_path / "texts", {"sources": [HUATUO], "before": [{"sources": [CLINIC]}, {}]})
    assert sources_of(folder) == [CLINIC, HUATUO]
    assert sources_of(tmp_path) == []


@pytest.mark.parametrize("sources", [None, "huatuo", ["huatuo"], [{"name": "huatuo"}], [{"name": [1]}], [7]])
def test_sources_of_another_form_are_one_clear_error(tmp_path, sources):
    folder = step(tmp_path / "texts", {"before": [{"sources": sources}]})
    with pytest.raises(BuildError, match="expected a list of objects with name and licence"):
        sources_of(folder)
