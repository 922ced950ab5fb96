"""The journal of an endpoint: torn or changed records are detected and not used; all others are kept."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.integrity.verify import verify
from mar_st.teachers.journal import CHECKS_FILE, HEADER_FILE, RECORDS_FILE, Journal, TeacherJournalError
from mar_st.teachers.vectors import text_keys

TEXTS = [f"文本{number}" for number in range(20)]
VECTORS = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
#: Bytes of a record: a key and eight numbers.
SIZE = 16 + 8 * 4


@pytest.fixture
def folder(tmp_path):
    journal = Journal(tmp_path / "store" / "endpoint-x", {"model": "m", "base_url": "u"})
    journal.folder.mkdir(parents=True)
    for start in (0, 8):
        some = slice(start, start + 8 if start == 0 else None)
        journal.append(text_keys(TEXTS[some]), VECTORS[some].tolist())
    return journal.folder


def opened(folder):
    journal = Journal(folder, {})
    journal.open()
    return journal


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def run(arguments):
    """Exit status of the command, and its JSON or its error."""
    outcome = CliRunner().invoke(app, ["verify", *map(str, arguments), "--json"])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        return 2, str(outcome.exception)
    return outcome.exit_code, json.loads(outcome.stdout)


def test_an_undamaged_journal_is_reported_as_whole(folder):
    status, report = run([str(folder)])
    assert (status, report["whole"], report["kind"], report["bytes"]) == (0, True, "journal", 20 * SIZE)
    assert run([str(folder.parent)])[1]["kind"] == "teacher vectors"
    assert opened(folder).index.find(text_keys(TEXTS)).tolist() == list(range(20))


@pytest.mark.parametrize("place", [3 * SIZE, 3 * SIZE + 20, 4 * SIZE - 1])
def test_a_changed_record_is_named_and_not_used(folder, capsys, place):
    flip(folder / RECORDS_FILE, place)
    for where in (folder, folder.parent):
        status, report = run([str(where)])
        assert status == 1
        assert [problem["found"] for problem in report["problems"]] == [
            f"record 3 (bytes {3 * SIZE} to {4 * SIZE}) was changed"
        ]
    status, _ = run([str(folder), "--repair"])
    assert status == 1
    assert (folder / RECORDS_FILE).stat().st_size == 20 * SIZE
    journal = opened(folder)
    assert journal.index.find(text_keys(TEXTS)).tolist() == [0, 1, 2, -1, *range(4, 20)]
    journal.append(text_keys(TEXTS[3:4]), VECTORS[3:4].tolist())  # bought again
    again = opened(folder)
    rows = again.index.find(text_keys(TEXTS))
    assert rows.tolist() == [0, 1, 2, 20, *range(4, 20)]
    kept = np.memmap(again.part.path, again.part.dtype, "r")["vector"]
    np.testing.assert_array_equal(kept[rows], VECTORS)


def test_only_a_torn_record_is_cut_off(folder):
    with (folder / RECORDS_FILE).open("ab") as file:
        file.write(b"half a record")
    status, report = run([str(folder)])
    assert status == 1
    assert f"13 of {SIZE} bytes from byte {20 * SIZE}" in report["problems"][0]["found"]
    assert run([str(folder), "--repair"])[0] == 0
    assert (folder / RECORDS_FILE).stat().st_size == 20 * SIZE
    assert opened(folder).rows == 20


def test_missing_records_are_reported(folder):
    content = (folder / RECORDS_FILE).read_bytes()
    (folder / RECORDS_FILE).write_bytes(content[: 15 * SIZE])
    status, report = run([str(folder)])
    assert (status, report["problems"][0]["found"]) == (1, "5 of 20 records are missing at the end")
    journal = opened(folder)
    assert journal.rows == 15
    journal.append(text_keys(TEXTS[15:]), VECTORS[15:].tolist())
    assert (folder / RECORDS_FILE).read_bytes() == content
    assert verify(folder).whole


def test_a_journal_of_an_earlier_version_gets_its_checksums(folder):
    sums = (folder / CHECKS_FILE).read_bytes()
    (folder / CHECKS_FILE).unlink()
    status, report = run([str(folder)])
    assert (status, report["whole"]) == (0, True)
    assert "20 records" in report["notes"][0]
    assert opened(folder).rows == 20
    assert (folder / CHECKS_FILE).read_bytes() == sums
    (folder / CHECKS_FILE).write_bytes(sums[:42])  # killed before the last were written
    assert opened(folder).rows == 20
    assert (folder / CHECKS_FILE).read_bytes() == sums


@pytest.mark.parametrize("header", ["", "[]", '{"dim": -1}', '{"dim": "8"}', "{}", "[" * 5000])
def test_a_damaged_header_is_one_error(folder, header):
    (folder / HEADER_FILE).write_text(header)
    with pytest.raises(TeacherJournalError, match=r"journal\.json is damaged"):
        opened(folder)
    assert run([str(folder)])[0] == 1
