"""Responses in a folder: each is fetched once, survives an interruption, and cannot be changed unnoticed."""

from __future__ import annotations

import hashlib
import json

import pytest
from tests.medteb_mteb.curation.relatives.api_server import Apis, serving

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.responses import Fetching, read_frozen
from medteb_mteb.curation.relatives.fetch.trials import studies
from medteb_mteb.curation.relatives.fetch.web import RequestSettings, TransientError, Web

OFFICIAL = "https://api.example.org"
EXTENT = {"studies": 25, "page": 10}
IDENTITY = {"source": "trials", "extent": EXTENT}


@pytest.fixture(scope="module")
def apis():
    with serving(Apis()) as running:
        yield running


@pytest.fixture
def open_folder(apis, tmp_path):
    """Opens the folder `raw` for a fetch: `open_folder(identity)`."""
    apis.requests.clear()
    (tmp_path / "raw").mkdir()
    web = Web(apis.url, RequestSettings("me@example.org", 100), sleep=lambda _: None)

    def call(identity=IDENTITY):
        return Fetching(tmp_path / "raw", identity, OFFICIAL, web, lambda _: None)

    return call


@pytest.fixture
def frozen(open_folder, tmp_path):
    """The path of `fetched.json` of a complete fetch."""
    fetching = open_folder()
    list(studies(fetching.ask, EXTENT))
    fetching.freeze()
    return tmp_path / "raw" / "fetched.json"


def test_a_frozen_folder_answers_what_was_fetched_and_nothing_else(frozen, apis):
    source = read_frozen(frozen, "trials", OFFICIAL)
    assert (source.count, source.extent, len(apis.requests)) == (3, EXTENT, 3)
    assert len(list(studies(source.ask, EXTENT))) == 25
    with pytest.raises(BuildError, match=r"holds no response to https://api\.example\.org/studies\?"):
        list(studies(source.ask, EXTENT | {"page": 9}))
    assert len(apis.requests) == 3
    assert not frozen.with_name("fetched.part").exists()


def test_the_list_names_the_official_address_file_digest_and_day(frozen):
    content = json.loads(frozen.read_text(encoding="utf-8"))
    for entry in content["responses"]:
        assert entry["url"].startswith(f"{OFFICIAL}/studies?format=json&")
        body = (frozen.parent / "responses" / entry["file"]).read_bytes()
        assert hashlib.sha256(body).hexdigest() == entry["sha256"]
        assert len(entry["day"]) == len("2026-01-01")


def test_a_response_that_is_there_is_not_fetched_again(open_folder, apis):
    first = open_folder()
    before = next(studies(first.ask, EXTENT))
    second = open_folder()
    assert next(studies(second.ask, EXTENT)) == before
    assert (first.requested, second.requested, len(apis.requests)) == (1, 0, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:2], lines[2][:30]],
        lambda lines: lines[:2],
        lambda lines: [*lines[:2], "{}\n"],
        lambda lines: [*lines[:2], json.dumps(json.loads(lines[2]) | {"sha256": None}) + "\n"],
        lambda lines: [*lines[:2], json.dumps(json.loads(lines[2]) | {"sha256": "0" * 64}) + "\n"],
    ],
    ids=["torn", "lost", "empty", "no digest", "other digest"],
)
def test_an_entry_that_was_lost_is_fetched_again(open_folder, tmp_path, apis, damage):
    for _, _ in zip(range(11), studies(open_folder().ask, EXTENT), strict=False):
        pass
    part = tmp_path / "raw" / "fetched.part"
    part.write_text("".join(damage(part.read_text().splitlines(keepends=True))))
    resumed = open_folder()
    assert len(list(studies(resumed.ask, EXTENT))) == 25
    assert resumed.requested == 2
    resumed.freeze()
    assert read_frozen(tmp_path / "raw" / "fetched.json", "trials", OFFICIAL).count == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[[[\n", r"fetched\.part is damaged"),
        ("\xff\n", r"fetched\.part is damaged"),
        ("[" * 99_999 + "\n", "damaged"),
    ],
)
def test_a_list_that_is_damaged_in_its_middle_is_one_clear_error(open_folder, tmp_path, line, message):
    next(studies(open_folder().ask, EXTENT))
    part = tmp_path / "raw" / "fetched.part"
    header, entry = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(header + line.encode("latin-1") + entry)
    with pytest.raises(BuildError, match=rf"{message}.*Delete the folder and fetch again"):
        open_folder()


def test_a_folder_of_another_fetch_or_of_other_files_is_refused(open_folder, tmp_path):
    open_folder()
    for identity in (IDENTITY | {"source": "pubmed"}, IDENTITY | {"extent": EXTENT | {"studies": 9}}):
        with pytest.raises(BuildError, match=r"holds responses of another fetch .*Give another folder"):
            open_folder(identity)
    (tmp_path / "raw" / "fetched.part").unlink()
    with pytest.raises(BuildError, match=r"is not empty \(responses\); give a new folder"):
        open_folder()


@pytest.mark.parametrize("name", ["fetched.part", "responses"])
def test_nothing_is_written_through_a_link_out_of_the_folder(open_folder, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "raw" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BuildError, match="is a symbolic link out of the folder"):
        open_folder()


def test_a_list_that_cannot_be_written_keeps_what_was_fetched(open_folder, tmp_path):
    fetching = open_folder()
    found = next(studies(fetching.ask, EXTENT))
    (tmp_path / "raw" / "fetched.json").mkdir()
    with pytest.raises(BuildError, match=r"raw cannot be written \(.*\); what was fetched before is kept"):
        fetching.freeze()
    (tmp_path / "raw" / "fetched.json").rmdir()
    assert next(studies(open_folder().ask, EXTENT)) == found


@pytest.mark.parametrize("change", ["changed", "missing", "linked"])
def test_a_response_that_was_changed_is_refused(frozen, tmp_path, change):
    source = read_frozen(frozen, "trials", OFFICIAL)
    for file in (frozen.parent / "responses").iterdir():
        body = file.read_bytes()
        file.unlink()
        if change == "changed":
            file.write_bytes(body.replace(b"Trial", b"Trail"))
        elif change == "linked":
            (tmp_path / file.name).write_bytes(body)
            file.symlink_to(tmp_path / file.name)
    with pytest.raises(BuildError, match=r"it was changed|cannot be read \(No such|symbolic link out"):
        next(studies(source.ask, EXTENT))


def test_a_response_that_this_version_cannot_read_is_one_clear_error(frozen):
    def parse(body):
        raise TransientError("an answer without studies")

    source = read_frozen(frozen, "trials", OFFICIAL)
    url = next(iter(json.loads(frozen.read_text())["responses"]))["url"]
    with pytest.raises(BuildError, match="an answer without studies; fetch into a new folder"):
        source.ask(url.removeprefix(OFFICIAL), {}, parse, ".json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "pubmed"}, "is of 'pubmed'; expected trials"),
        ({"source": ["trials"]}, "is not a list of responses that this version reads"),
        ({"version": 2}, "is not a list of responses that this version reads"),
        ({"extent": [1]}, "is not a list of responses"),
        ({"responses": {"a": 1}}, "is not a list of responses"),
        ({"responses": [{"url": "x"}]}, "is not a list of responses"),
        ({"responses": 7}, "is damaged"),
    ],
)
def test_a_list_of_another_form_is_one_clear_error(frozen, change, message):
    frozen.write_text(json.dumps(json.loads(frozen.read_text()) | change))
    with pytest.raises(BuildError, match=rf"fetched\.json {message}"):
        read_frozen(frozen, "trials", OFFICIAL)


def test_maxima_are_those_of_the_fetch(frozen):
    extent = {"studies": 5, "terms": {"pain": 3, "fever": True, "cough": 0}, "server": "x"}
    frozen.write_text(json.dumps(json.loads(frozen.read_text()) | {"extent": extent}))
    source = read_frozen(frozen, "trials", OFFICIAL)
    assert (source.most("studies"), source.most("terms", "pain")) == (5, 3)
    for kind in ("pages", "terms", "server"):
        with pytest.raises(BuildError, match=f"holds no {kind}; it was fetched for other tasks"):
            source.most(kind)
    for kind, label in (("terms", "fever"), ("terms", "cough"), ("terms", "x"), ("studies", "pain")):
        with pytest.raises(BuildError, match=f"holds no {kind} '{label}'"):
            source.most(kind, label)
