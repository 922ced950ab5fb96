"""Journals of judgements, answers, decisions and vectors: verified, repaired and read."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np

from mar_st.errors import MarError
from mar_st.integrity.verify import verify
from mar_st.teachers.journal import CHECKS_FILE, HEADER_FILE, RECORDS_FILE, Journal
from mar_st.teachers.vectors import text_keys
from medteb_mteb.curation.diversify.journal import DecisionJournal
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.journals import repair_damaged, verify_journal
from medteb_mteb.curation.judge.entries import JudgeAccount, Request
from medteb_mteb.curation.judge.journal import JudgementJournal as Judgements
from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path

_SETTINGS = settings_digest({"model": "m"})
_KEYS = [bytes([number]) * 16 for number in range(1, 9)]
_TEXTS = [f"文{number}" for number in range(8)]


def prepare(place: Path) -> Target:
    """Set up the target: a file of a journal; its first line is the file's name."""
    vectors = np.eye(8, dtype=np.float32)
    made = place / "made"
    made.mkdir()
    with AnswerJournal(made / "answers") as answers:
        for number, key in enumerate(_KEYS):
            answers.add(_SETTINGS, key, Answer(0, "", "答" * 600 * number), llm="one", paid=Account())
    with Judgements(made / "judgements") as judgements:
        grades = dict.fromkeys(_KEYS, "A")
        request = Request(tuple(_KEYS), 0, False)
        judgements.settle(
            _SETTINGS, request, judge="one", grades=grades, failures={}, follow=(), paid=JudgeAccount()
        )
    DecisionJournal(made / "decisions", vectors, {"threshold": 0.8}).write(np.ones(8, dtype=bool))
    bought = Journal(made, {"model": "m", "base_url": "u"})
    bought.append(text_keys(_TEXTS), vectors.tolist())

    def check(data: bytes) -> str:
        line, _, content = data.partition(b"\n")
        name, work = line.decode("utf-8", "replace"), place / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        if name in (RECORDS_FILE, CHECKS_FILE, HEADER_FILE):
            for other in (RECORDS_FILE, CHECKS_FILE, HEADER_FILE):
                shutil.copyfile(made / other, work / other)
            (work / name).write_bytes(content)
            report = verify(work)
            journal = Journal(work, {})
            journal.open()
            rows = journal.index.find(text_keys(_TEXTS))
            if journal.part is not None and name == RECORDS_FILE:
                # Bytes after the last record with a checksum count as just written.
                kept = np.memmap(work / RECORDS_FILE, journal.part.dtype, "r")["vector"]
                for text, row in enumerate(rows):
                    assert not 0 <= row < len(vectors) or (kept[row] == vectors[text]).all()
            return f"{report.whole} {(rows >= 0).sum()}"
        if name not in ("answers", "judgements", "decisions"):
            return "no such file"
        path = work / name
        path.write_bytes(content)
        report = verify_journal(path)
        if report.whole:
            return "whole"
        repair_damaged(report)
        again = verify_journal(path)
        assert again.whole
        return f"repaired {again.notes}"

    names = ("answers", "judgements", "decisions", RECORDS_FILE, CHECKS_FILE, HEADER_FILE)
    seeds = [name.encode() + b"\n" + (made / name).read_bytes() for name in names]
    return Target(seeds, check, (MarError, BuildError), named=True)
