"""Raw files are hostile: archives that unpack to too much, XML with entities, links, broken text."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile

import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import write_tar

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import raw
from medteb_mteb.curation.relatives.raw import (
    Archive,
    Raw,
    clean,
    parse_csv,
    parse_json,
    parse_xml,
)
from medteb_mteb.curation.relatives.streams import parse_jsonl

BILLION = b"""<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;</a>"""
EXTERNAL = b"""<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>"""
INSIDE = b"""<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>"""


@pytest.mark.parametrize("data", [BILLION, EXTERNAL, INSIDE], ids=["billion", "external", "entity"])
def test_xml_with_a_document_type_is_refused(data):
    with pytest.raises(
        BuildError, match=r"page\.xml declares a document type, which could hold entities; it is"
    ):
        parse_xml(data, "page.xml")


def test_invalid_xml_is_one_clear_error():
    with pytest.raises(BuildError, match=r"page\.xml is not valid XML \(mismatched tag"):
        parse_xml(b"<a><b></a>", "page.xml")
    with pytest.raises(BuildError, match=r"page\.xml is not valid XML \(undefined entity"):
        parse_xml(b"<a>&nbsp;</a>", "page.xml")
    assert parse_xml("<a>é &amp; x</a>".encode(), "page.xml").text == "é & x"


def bomb() -> bytes:
    return b"0" * 5_000_000


def test_a_zip_bomb_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a.xml", bomb())
    with pytest.raises(BuildError, match=r"b\.zip: a\.xml has more than [\d,]+ bytes; it is refused"):
        list(Archive(tmp_path / "b.zip").members("xml$"))


def test_a_tar_bomb_is_refused_even_in_an_unused_member(tmp_path):
    write_tar(tmp_path / "b.tar.gz", {"junk.bin": bomb(), "a.xml": b"<a/>"})
    with pytest.raises(BuildError, match=r"b\.tar\.gz unpacks to more than [\d,]+ bytes; it is refused"):
        list(Archive(tmp_path / "b.tar.gz").members("xml$"))


def test_a_gzip_bomb_is_refused(tmp_path):
    (tmp_path / "b.gz").write_bytes(gzip.compress(bomb()))
    with pytest.raises(BuildError, match=r"b\.gz has more than [\d,]+ bytes"):
        raw.read_bytes(tmp_path / "b.gz")


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(raw, "MAX_MEMBERS", 2)
    files = {f"{number}.xml": b"<a/>" for number in range(3)}
    write_tar(tmp_path / "b.tar.gz", files)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as out:
        for name, data in files.items():
            out.writestr(name, data)
    for name in ("b.tar.gz", "b.zip"):
        with pytest.raises(BuildError, match="holds more than 2 files"):
            list(Archive(tmp_path / name).members("xml$"))


@pytest.mark.parametrize("name", ["b.zip", "b.tar.gz", "b.gz"])
def test_a_broken_archive_is_one_clear_error(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 this is none" * 9)

    def read():
        return (
            raw.read_bytes(tmp_path / name) if name == "b.gz" else list(Archive(tmp_path / name).members("."))
        )

    with pytest.raises(BuildError, match=rf"{name} cannot be (unpacked|read) \("):
        read()


def test_a_truncated_archive_is_one_clear_error(tmp_path):
    write_tar(
        tmp_path / "b.tar.gz", {f"{n}.xml": hashlib.sha256(bytes([n])).digest() * 40 for n in range(20)}
    )
    whole = (tmp_path / "b.tar.gz").read_bytes()
    (tmp_path / "b.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BuildError, match=r"b\.tar\.gz cannot be unpacked"):
        list(Archive(tmp_path / "b.tar.gz").members("xml$"))


def test_members_come_by_path_from_every_form(tmp_path):
    files = {"b/2.xml": b"<b/>", "a/1.xml": b"<a/>", "a/no.txt": b""}
    write_tar(tmp_path / "x.tar.gz", {f"./{name}": data for name, data in files.items()})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        for name, data in files.items():
            out.writestr(name, data)
            (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "x" / name).write_bytes(data)
    expected = [("a/1.xml", b"<a/>"), ("b/2.xml", b"<b/>")]
    for archive in (
        Archive(tmp_path / "x.tar.gz"),
        Archive(tmp_path / "x"),
        Archive(tmp_path / "x.zip", packed.getvalue()),
    ):
        assert list(archive.members("xml$")) == expected


def test_links_out_of_the_folder_are_refused(tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(BuildError, match=r"a\.json is a symbolic link out of the folder"):
        Raw(tmp_path / "in").find("a.json")


def test_missing_and_duplicate_files_are_named(tmp_path):
    with pytest.raises(BuildError, match="no such folder"):
        Raw(tmp_path / "none")
    folder = Raw(tmp_path)
    with pytest.raises(BuildError, match=r"has no a\.json: the questions of somewhere\."):
        folder.one("a.json", "the questions of somewhere")
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text("{}")
    with pytest.raises(BuildError, match=r"has several a\.json \(x/a\.json and y/a\.json\); keep one"):
        folder.one("a.json", "the questions of somewhere")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"a\.json is not valid JSON"),
        (b"[" * 100_000, r"a\.json is not valid JSON"),
        (b"[]", r"a\.json: expected a JSON object, got \[\]"),
        (b"\xff{}", r"a\.json is not valid UTF-8 at byte 1"),
    ],
)
def test_broken_json_is_one_clear_error(tmp_path, content, message):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(BuildError, match=message):
        parse_json(tmp_path / "a.json", dict)


def test_json_lines_name_the_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n[2]\n', encoding="utf-8")
    with pytest.raises(BuildError, match=r"a\.jsonl:3: expected a JSON object, got \[2\]"):
        list(parse_jsonl(tmp_path / "a.jsonl"))


def test_tables_name_the_line():
    assert parse_csv('a,b\n1,"x\ny"\n', "t", ("a",)) == [{"a": "1", "b": "x\ny"}]
    with pytest.raises(BuildError, match="t: no column c; got a, b"):
        parse_csv("a,b\n", "t", ("c",))
    with pytest.raises(BuildError, match="t:2: 1 cells; the header has 2"):
        parse_csv("a,b\n1\n", "t", ("a",))


def test_clean_keeps_paragraphs():
    assert clean("  a\t b \r\n\n\n\n c\n") == "a b\n\nc"
    assert clean(None) == ""
