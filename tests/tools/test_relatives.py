"""Builders of public sets and of English MedTEB, one per family, on tiny raw files."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest
from tools.relatives.english import BUILDERS
from tools.relatives.notes import read_notes, read_returns
from tools.relatives.pairs import two_passages
from tools.relatives.raw import Raw, write_edition, write_snapshot
from tools.relatives.sets import SETS, medquad_pairs

from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

MEDQUAD = """<Document><QAPairs>
<QAPair pid="1"><Question>What is gout?</Question><Answer>A form of  arthritis.</Answer></QAPair>
<QAPair pid="2"><Question>What is gout?</Question><Answer>A form of arthritis.</Answer></QAPair>
<QAPair pid="3"><Question>Who gets gout?</Question><Answer></Answer></QAPair>
</QAPairs></Document>"""


def _medquad(folder: Path) -> Raw:
    (folder / "1_Some_QA").mkdir(parents=True)
    (folder / "1_Some_QA" / "0001.xml").write_text(MEDQUAD)
    return Raw(folder)


def test_medquad_gives_each_answered_pair_once(tmp_path: Path) -> None:
    pairs, left_out = medquad_pairs(_medquad(tmp_path))
    assert [pair.question for pair in pairs] == ["What is gout?"]
    assert left_out["pairs without an answer"] == 1


def test_an_untitled_text_gives_two_disjoint_passages(tmp_path: Path) -> None:
    texts = [
        {"title": "Gout", "text": "A form of arthritis."},
        {"text": "Gout hurts. It swells! Dr. A waits."},
        {"text": "痛风很痛。要少喝酒。"},
        {"text": "One sentence."},
    ]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    counts = two_passages(tmp_path / "texts.jsonl", tmp_path / "pairs.jsonl")
    assert counts == {"titled": 1, "passages": 2, "left_out": 1}
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert pairs[0] == {"query": "Gout", "positive": "A form of arthritis."}
    for pair, text in zip(pairs[1:], texts[1:3], strict=True):
        halves = [pair["query"], pair["positive"]]
        assert text["text"] in (
            " ".join(halves),
            " ".join(halves[::-1]),
            "".join(halves),
            "".join(halves[::-1]),
        )


def test_a_snapshot_file_says_how_it_differs(tmp_path: Path) -> None:
    name, raw = "retrieval_medquad_dataset", _medquad(tmp_path / "raw")
    builder = BUILDERS[name]
    file = write_snapshot(name, builder.make(name, raw, "bm25"), tmp_path / "out", raw, builder.differs)
    with file.open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 1
    assert builder.differs in (file.parent / "snapshot.json").read_text()


def test_a_public_set_is_written_as_an_edition(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    terms = "".join(
        f'[Term]\nid: DOID:{n}\nname: disease {n}\ndef: "Definition {n}." []\n\n' for n in range(3)
    )
    (tmp_path / "raw" / "DO_rare_slim.obo").write_text(f"format-version: 1.2\n\n{terms}")
    raw = Raw(tmp_path / "raw")
    edition = write_edition("DiseaseOntologyRetrieval", SETS["DiseaseOntologyRetrieval"](raw), tmp_path, raw)
    assert edition.counts == {"queries": 3, "corpus": 3, "qrels": 3}


def test_a_missing_raw_file_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(MarError, match="github"):
        SETS["BIOSSES"](Raw(tmp_path))


def test_notes_are_the_first_summaries_and_returns_count_survivors(tmp_path: Path) -> None:
    note = "Chief Complaint:\nfever\n\nHistory of Present Illness:\nweek of cough\n"
    with (tmp_path / "discharge.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["hadm_id", "note_type", "text"])
        rows.writerows([["1", "DS", note], ["1", "DS", "other"], ["2", "AD", "addendum"]])
    (tmp_path / "admissions.csv").write_text(
        "subject_id,hadm_id,admittime,dischtime,deathtime\n"
        "7,1,2100-01-01 00:00:00,2100-01-05 00:00:00,\n"
        "7,2,2100-01-20 00:00:00,2100-01-25 00:00:00,2100-01-25 00:00:00\n"
        "8,3,2100-01-01 00:00:00,2100-01-02 00:00:00,\n"
    )
    (only,) = read_notes(Raw(tmp_path))
    assert "fever" in json.dumps(only._asdict())
    assert read_returns(Raw(tmp_path), 30) == {"1": True, "3": False}
