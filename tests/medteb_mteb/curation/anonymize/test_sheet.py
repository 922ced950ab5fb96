from __future__ import annotations

import csv
import stat

import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.known import COLUMNS, read_known, write_sheet
from medteb_mteb.curation.anonymize.step import ANONYMIZE
from medteb_mteb.curation.files.read import read_texts

TEXTS = ["9床常青体温38.6℃", "患者王秀兰，昨天常青也来了", "样品A3320117号", "黄芪30g水煎服灵敏"]


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "texts.txt.jsonl"
    rows = [f'{{"id": "t{number}", "text": "{text}"}}\n' for number, text in enumerate(TEXTS)]
    file.write_text("".join(rows), encoding="utf-8")
    return file


def rows_of(file):
    with file.open(encoding="utf-8-sig", newline="") as lines:
        return list(csv.DictReader(lines))


def filled(file, answers):
    rows = rows_of(file)
    with file.open("w", encoding="utf-8-sig", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        writer.writeheader()
        writer.writerows({**row, "identifier": answers.get(row["value"], "")} for row in rows)
    return {row["value"] for row in rows}


def test_answers_decide_what_is_replaced(source, tmp_path, run_step):
    sheet = tmp_path / "sheet.csv"
    write_sheet(source, sheet)
    rows = rows_of(sheet)
    assert stat.S_IMODE(sheet.stat().st_mode) == 0o600
    values = {row["value"] for row in rows}
    assert "A3320117" in values
    assert "王秀兰" not in values  # certain: nothing to ask
    assert all("【" in row["example"] for row in rows)

    filled(sheet, {"A3320117": "是"})
    run_step(ANONYMIZE, "out", **{"in": source}, known=sheet)
    assert [text.text for text in read_texts(tmp_path / "out")][2] == "样品[病历号]号"
    filled(sheet, {"A3320117": "no"})
    run_step(ANONYMIZE, "strict", **{"in": source}, strict=True, known=sheet)
    assert [text.text for text in read_texts(tmp_path / "strict")][2] == TEXTS[2]
    run_step(ANONYMIZE, "all", **{"in": source}, strict=True)
    assert [text.text for text in read_texts(tmp_path / "all")][2] == "样品[病历号]号"
    for folder in ("out", "strict"):
        written = b"".join(path.read_bytes() for path in (tmp_path / folder).iterdir() if path.is_file())
        assert "王秀兰".encode() not in written


def test_no_cell_is_a_formula(tmp_path):
    file = tmp_path / "in.jsonl"
    starts = ("=", "-", "＝", "＋", "－", "＠", " ＝")
    file.write_text("".join(f'{{"text": "{one}1A2B3C4D5E6F 取样"}}\n' for one in starts), encoding="utf-8")
    sheet = tmp_path / "sheet.csv"
    write_sheet(file, sheet)
    for row in rows_of(sheet):
        for cell in row.values():
            assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("identifier,kind,value,count,example\nmaybe,NAME,甲乙丙,1,x\n", "line 2: the answer is yes or no"),
        ("identifier,kind,value,count,example\nyes,NAMEE,甲乙丙,1,x\n", "line 2: expected an identifier"),
    ],
)
def test_errors_name_the_row_and_not_the_value(tmp_path, content, message):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(content, encoding="utf-8")
    with pytest.raises(MarError, match=message) as error:
        read_known(sheet)
    assert "甲乙丙" not in str(error.value)


def test_a_sheet_that_exists_is_kept(source, tmp_path):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("mine")
    with pytest.raises(MarError, match="exists"):
        write_sheet(source, sheet)
    assert sheet.read_text() == "mine"
