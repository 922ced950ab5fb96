"""`medteb edition`: what its commands print about editions."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.editions import list_editions, load_edition, write_manifest


def test_the_list_shows_what_each_edition_is(medteb, data_root):
    code, out, _ = medteb("edition", "list", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["digest"] for row in rows] == [edition.digest for edition in list_editions()]
    shown = [json.loads(medteb("edition", "show", row["task"], "--json")[1]) for row in rows]
    assert shown == rows
    lines = medteb("edition", "list")[1].splitlines()
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith(f"{row['task']}  {row['name']} {row['version']}  {row['digest'][:12]}  ")
        assert line.endswith(row["path"])


def test_an_edition_is_shown_with_its_further_fields_and_files(medteb, data_root):
    folder = data_root / "MedTEBSTS"
    more = {"counts": {"test": 5}, "seed": {"value": 3}, "description": "问题对"}
    edition = write_manifest(folder, task="MedTEBSTS", name="own", version="2", licence="mit", **more)
    code, out, _ = medteb("edition", "show", folder)
    assert code == 0
    (entry,) = edition.files.values()
    assert out.splitlines() == [
        "MedTEBSTS, edition own 2",
        f"digest   {edition.digest}",
        "licence  mit",
        f"path     {folder}",
        "         5 test",
        'seed: {"value": 3}',
        "description: 问题对",
        f"{entry.sha256[:12]}  {entry.bytes:>10}  test.jsonl",
    ]


def test_every_edition_is_verified_before_the_first_problem_is_an_error(medteb, data_root):
    (data_root / "MedTEBRetrieval" / "queries.jsonl").unlink()
    (data_root / "MedTEBSTS" / "more.jsonl").touch()
    code, out, err = medteb("edition", "verify", "--json")
    assert code == 2
    problems = {row["task"]: row["problem"] for row in json.loads(out)}
    assert problems["MedTEBReranking"] is None
    assert problems["MedTEBRetrieval"].endswith("queries.jsonl is in the manifest but missing on disk.")
    assert "more.jsonl is not in the manifest" in problems["MedTEBSTS"]
    assert problems["MedTEBRetrieval"] in err
    assert problems["MedTEBSTS"] in err
    code, out, _ = medteb("edition", "verify")
    assert code == 2
    (line,) = [line for line in out.splitlines() if line.startswith("MedTEB")]
    assert line.startswith("MedTEBReranking")


@pytest.mark.parametrize("url", ["", "https://example.org/sts"])
def test_croissant_lists_the_files_of_the_manifest(medteb, data_root, url):
    code, out, _ = medteb("edition", "croissant", "MedTEBSTS", *(["--url", url] if url else []))
    assert code == 0
    edition = load_edition(data_root / "MedTEBSTS")
    content = json.loads(out)
    assert content["url"] == (url or f"urn:sha256:{edition.digest}")
    digests = {entry["sha256"] for entry in content["distribution"]}
    assert digests == {entry.sha256 for entry in edition.files.values()}


def test_a_datasheet_names_what_is_not_recorded(medteb, data_root):
    code, out, _ = medteb("edition", "datasheet", data_root / "MedTEBSTS")
    assert code == 0
    edition = load_edition(data_root / "MedTEBSTS")
    assert out.startswith("# Datasheet of MedTEBSTS, edition mini\n")
    assert edition.digest in out
    assert "not recorded" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("show", "Nope"), "No edition of task 'Nope'"),
        (("croissant", "./nowhere"), "nowhere has no manifest.json"),
        (("datasheet", "MedTEBSTS", "--build", "nowhere"), "nowhere"),
        (("write", "nowhere", "--license", "mit"), "nowhere: no such folder"),
        (("write", "data/MedTEBSTS"), "Missing option '--license'"),
        (("build", "maxi", "out"), "no edition 'maxi' can be built; the one that can is 'mini'"),
        (("build", "mini", "data"), "data is not empty"),
    ],
)
def test_unusable_input_is_refused(refused, data_root, monkeypatch, args, message):
    monkeypatch.chdir(data_root.parent)
    before = sorted(data_root.rglob("*"))
    assert message in refused("edition", *args)
    assert sorted(data_root.rglob("*")) == before
