"""Tiny raw files in the layouts that the sources publish, with texts written for the tests."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[5] / "shared" / "data" / "sources"

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<Document id="{page}" source="{source}" url="https://example.org/{page}">
<Focus>{focus}</Focus>
<QAPairs>
{pairs}
</QAPairs>
</Document>
"""
PAIR = """	<QAPair pid="{number}">
			<Question qid="{page}-{number}" qtype="information">{question}</Question>
			<Answer>{answer}</Answer>
	</QAPair>"""

PAGES = {
    "1_CancerGov_QA": {
        "0000001": [
            ("What is a mole ?", "A mole is a spot of pigment\n            on the skin."),
            ("How is a mole checked ?", "A doctor looks at its edge, its colour and its size."),
        ]
    },
    "10_MPlus_ADAM_QA": {"0000007": [("What is fever ?", "")]},
    "8_NHLBI_QA_XML": {
        "0000003": [
            ("What is asthma ?", "Asthma is a disease of the airways &amp; lungs."),
            ("What is asthma ?", "Asthma is a disease of the airways &amp; lungs."),
        ]
    },
}
#: Answers that people graded, in the form of the zip.
GRADED = {
    "ADAM_0000007_Sec1.txt": (
        "What is fever ? (Also called: Pyrexia)",
        "Fever is a high temperature of the body.",
    ),
    "NHLBI_0000003_Sec1.txt": ("What is asthma ?", "Asthma is a disease of the airways & lungs."),
    "CancerGov_0000001_Sec2.txt": (
        "How is a mole checked ?",
        "A doctor looks at its edge, its colour and its size.",
    ),
}
GRADES = [
    ("1", "4-Excellent", "ADAM_0000007_Sec1.txt"),
    ("1", "1-Incorrect", "NHLBI_0000003_Sec1.txt"),
    ("2", "2-Related", "NHLBI_0000003_Sec1.txt"),
    ("2", "3-Incomplete", "NHLBI_0000003_Sec1.txt"),
    ("2", "1-Incorrect", "ADAM_0000007_Sec1.txt"),
    ("3", "1-Incorrect", "CancerGov_0000001_Sec2.txt"),
    ("3", "2-Related", "CancerGov_0000001_Sec2.txt"),
]
QUESTIONS = """<?xml version="1.0" encoding="UTF-8"?>
<LiveQA2017-Medical-Test-Set-Full>
	<NLM-QUESTION qid="TQ1">
		<Original-Question qfile="a.txt"><SUBJECT>hot</SUBJECT><MESSAGE>I am hot , what is
		a fever</MESSAGE></Original-Question>
		<NIST-PARAPHRASE>What is fever?</NIST-PARAPHRASE>
		<NLM-Summary>Fever?</NLM-Summary>
	</NLM-QUESTION>
	<NLM-QUESTION qid="TQ2">
		<Original-Question qfile="b.txt"><SUBJECT>lungs</SUBJECT><MESSAGE>what is asthma</MESSAGE>
		</Original-Question>
		<NIST-PARAPHRASE></NIST-PARAPHRASE>
		<NLM-Summary>What is asthma?</NLM-Summary>
	</NLM-QUESTION>
	<NLM-QUESTION qid="TQ3">
		<Original-Question qfile="c.txt"><SUBJECT></SUBJECT><MESSAGE>my mole</MESSAGE></Original-Question>
		<NIST-PARAPHRASE>How is a mole checked?</NIST-PARAPHRASE>
		<NLM-Summary>How is a mole checked?</NLM-Summary>
	</NLM-QUESTION>
</LiveQA2017-Medical-Test-Set-Full>
"""


def write_live_questions(folder: Path, questions: dict[str, str]) -> None:
    """The file of LiveQA's questions, with the given texts by number."""
    rows = "".join(
        f'<NLM-QUESTION qid="TQ{number}"><Original-Question qfile="a.txt"><SUBJECT></SUBJECT>'
        f"<MESSAGE>{text}</MESSAGE></Original-Question></NLM-QUESTION>"
        for number, text in questions.items()
    )
    (folder / "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml").write_text(
        f"<LiveQA2017-Medical-Test-Set-Full>{rows}</LiveQA2017-Medical-Test-Set-Full>", encoding="utf-8"
    )


def graded_zip(grades=GRADES, graded=GRADED) -> bytes:
    """The zip of grades: a row of answers per grade, as published."""
    name = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers"
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["AnswerID", "Answer"])
    for _, _, answer in grades:
        question, text = graded[answer]
        writer.writerow([answer, f"Question: {question}\nURL: https://example.org\nAnswer: {text}) \n"])
    lines = "".join(f"{' '.join(row)}\n" for row in grades)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(f"{name}/All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt", lines)
        out.writestr(
            f"__MACOSX/{name}/._All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt", b"\0\xff"
        )
        out.writestr(f"{name}/All-2479-Answers-retrieved-from-MedQuAD.csv", table.getvalue())
    return packed.getvalue()


def medquad_files() -> dict[str, bytes]:
    """The files of MedQuAD by path."""
    files = {"readme.txt": b"MedQuAD", f"{'QA-TestSet-LiveQA-Med-Qrels-2479-Answers'}.zip": graded_zip()}
    for collection, pages in PAGES.items():
        for page, pairs in pages.items():
            inside = "\n".join(
                PAIR.format(page=page, number=number, question=question, answer=answer)
                for number, (question, answer) in enumerate(pairs, start=1)
            )
            text = PAGE.format(page=page, source=collection, focus="x", pairs=inside)
            files[f"{collection}/{page}.xml"] = text.encode()
    return files


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    """A `.tar.gz` of the files."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def write_medquad(folder: Path, *, packed: bool = True) -> Path:
    """MedQuAD as archive or checkout, and the LiveQA questions beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        write_tar(folder / "MedQuAD.tar.gz", medquad_files())
    else:
        for name, data in medquad_files().items():
            (folder / "MedQuAD" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "MedQuAD" / name).write_bytes(data)
    (folder / "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml").write_text(
        QUESTIONS, encoding="utf-8"
    )
    return folder


#: A discharge note in the form of MIMIC-IV-Note, with nothing of it.
NOTE = """
Name: ___
Chief Complaint:
chest pain

History of Present Illness:
He felt pain
on stairs.

Past Medical History: none
Discharge Diagnosis:
Angina

Discharge Instructions:
Rest. History of Present Illness: not a heading here
"""


def note_of(**sections: str) -> str:
    """A note of the given sections: `Chief_Complaint="x"`."""
    return "\n \nName:  ___\n \n" + "\n\n".join(
        f"{name.replace('_', ' ')}:\n{text}" for name, text in sections.items()
    )


def write_notes(folder: Path, notes: list[str], kinds: str = "") -> Path:
    """`note/discharge.csv.gz` in the published layout; note n is of admission 2000n of patient 1000n.

    Args:
        folder: The folder of the copy.
        notes: Texts of the notes.
        kinds: `D` for a discharge summary and `A` for an addendum to the admission before it, per note.
    """
    columns = ("note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text")
    rows: list[tuple] = [columns]
    admission = -1
    for number, text in enumerate(notes):
        addendum = kinds[number : number + 1] == "A"
        admission += not addendum
        subject, kind = 10_000 + admission, "AD" if addendum else "DS"
        day = "2180-05-07 00:00:00"
        rows.append((f"{subject}-{kind}-1", subject, 20_000 + admission, kind, 1, day, day, text))
    (folder / "note").mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "note" / "discharge.csv.gz", "wt", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    return folder


def write_admissions(folder: Path, stays: list[tuple[int, int, str, str, str]]) -> Path:
    """`hosp/admissions.csv.gz` in the published layout: patient, admission, first and last day, death."""
    columns = (
        "subject_id", "hadm_id", "admittime", "dischtime", "deathtime", "admission_type",
        "admit_provider_id", "admission_location", "discharge_location", "insurance", "language",
        "marital_status", "race", "edregtime", "edouttime", "hospital_expire_flag",
    )  # fmt: skip
    rows = [
        (subject, stay, start, end, death, "URGENT", "P00", "EMERGENCY ROOM", "HOME", "Other", "?",
         "", "", "", "", int(bool(death)))
        for subject, stay, start, end, death in stays
    ]  # fmt: skip
    (folder / "hosp").mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "hosp" / "admissions.csv.gz", "wt", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([columns, *rows])
    return folder


def write_exams(folder: Path, **changes: object) -> Path:
    """One question of MedMCQA and one of MedQA, in the published layouts."""
    folder.mkdir(parents=True, exist_ok=True)
    row = {
        "question": "Which  organ\nbeats?",
        "exp": None,
        "cop": 2,
        "opa": "Skin",
        "opb": "Heart",
        "opc": "Liver",
    }
    row |= {"opd": "Bone", "id": "x1"} | changes
    (folder / "dev.json").write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    exam = {"question": "What is given?", "options": {"A": "Tea", "B": "Aspirin"}, "answer_idx": "B"}
    (folder / "phrases_no_exclude_test.jsonl").write_text(json.dumps(exam) + "\n", encoding="utf-8")
    return folder


def _snippet(pmid: str, text: str, section: str = "abstract", start: int = 0) -> dict:
    address = f"http://www.ncbi.nlm.nih.gov/pubmed/{pmid}"
    return {"document": address, "text": text, "beginSection": section, "offsetInBeginSection": start}


def write_bioasq(folder: Path) -> Path:
    """One golden batch, BEIR's topics and qrels."""
    folder.mkdir(parents=True, exist_ok=True)
    addresses = [f"http://www.ncbi.nlm.nih.gov/pubmed/{pmid}" for pmid in ("11", "12", "13", "14")]
    snippets = [
        _snippet("12", "It is caused by a virus.", start=40),
        _snippet("12", "Flu is an infection. It is caused by a virus."),
        _snippet("12", "Influenza in adults", "title"),
        _snippet("11", "Insulin lowers blood sugar.", start=7),
        _snippet("11", "Insulin lowers blood sugar.", start=7),
        _snippet("13", "Gallstones in pregnancy", "title"),
    ]
    questions = [{"id": "q1", "body": "What causes flu?", "documents": addresses, "snippets": snippets}]
    (folder / "7B1_golden.json").write_text(json.dumps({"questions": questions}), encoding="utf-8")
    topics = "q1\tWhat causes flu?\nq2\tWhat does insulin do?\nq3\tNobody knows?\n"
    (folder / "topics.beir-v1.0.0-bioasq.test.tsv.gz").write_bytes(gzip.compress(topics.encode()))
    qrels = "q1 0 12 1\nq1 0 14 1\nq2 0 11 1\nq3 0 14 1\n"
    (folder / "qrels.beir-v1.0.0-bioasq.test.txt").write_text(qrels, encoding="utf-8")
    return folder


def write_pubmedqa(folder: Path, *, artificial: bool = False) -> Path:
    """Test split and labelled questions of PubMedQA."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        str(number): {
            "QUESTION": f"Is {word} useful?",
            "CONTEXTS": [f"We studied {word}.", "A trial."],
            "LONG_ANSWER": "Yes.",
        }
        for number, word in enumerate(("aspirin", "insulin", "surgery", "rest"), start=1)
    }
    test = {key: rows[key] for key in ("1", "2")}
    (folder / "test_set.json").write_text(json.dumps(test), encoding="utf-8")
    (folder / "ori_pqal.json").write_text(json.dumps(rows), encoding="utf-8")
    if artificial:
        more = {"9": {"QUESTION": "Tea", "CONTEXTS": ["We studied tea."]}}
        (folder / "ori_pqaa.json").write_text(json.dumps(more), encoding="utf-8")
    return folder


def write_biosses(folder: Path) -> Path:
    """The table of BIOSSES; one sentence is quoted and has a tab in it."""
    folder.mkdir(parents=True, exist_ok=True)
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    pairs = [
        ("GATA2 is a gene.", '"GATA2\tis a gene"', "3.8"),
        ("Mice were fed.", "Rain fell.", "0.2"),
        ("A drug works.", "The drug is effective.", "3"),
    ]
    lines = [
        f"{i}\tGENRE\tfilename\t1997\t1\tBIOSSES\tBIOSSES\t{a}\t{b}\t{s}" for i, (a, b, s) in enumerate(pairs)
    ]
    (folder / "all.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return folder


OBO = """format-version: 1.2
ontology: doid

[Term]
id: DOID:1
name: angina
def: "A heart disease with \\"tight\\" chest pain." [url:https\\://example.org]
synonym: "AP" EXACT []

[Term]
id: DOID:2
name: rhinitis
def: "An inflammation of the nose." []

[Term]
id: DOID:3
name: nameless
comment: no definition

[Term]
id: DOID:4
name: old thing
def: "Gone." []
is_obsolete: true

[Typedef]
id: part_of
name: part of
"""


def write_ontology(folder: Path) -> Path:
    """A few terms of the Disease Ontology's form."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "doid.obo").write_text(OBO, encoding="utf-8")
    return folder


def write_icliniq(folder: Path) -> Path:
    """ChatDoctor's form of iCliniq; one question comes twice."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"instruction": "x", "input": "I cough.", "answer_icliniq": "Drink tea.", "answer_chatgpt": "?"},
        {"instruction": "x", "input": "I cough.", "answer_icliniq": "See a doctor.", "answer_chatgpt": "?"},
        {
            "instruction": "x",
            "input": "My knee hurts.",
            "answer_icliniq": "Rest the knee.",
            "answer_chatgpt": "?",
        },
        {"instruction": "x", "input": "", "answer_icliniq": "Hello.", "answer_chatgpt": "?"},
    ]
    (folder / "iCliniq.json").write_text(json.dumps(rows), encoding="utf-8")
    return folder


def write_drugbank(folder: Path) -> Path:
    """DrugBank's XML with its namespace."""
    folder.mkdir(parents=True, exist_ok=True)
    drugs = [("Aspirin", "It thins blood."), ("Insulin", "It lowers sugar."), ("Placebo", "")]
    inside = "".join(
        f'<drug type="small molecule"><drugbank-id primary="true">DB{i}</drugbank-id><name>{name}</name>'
        f"<description>{text}</description><targets><target><name>not a drug</name></target></targets></drug>"
        for i, (name, text) in enumerate(drugs)
    )
    text = f'<?xml version="1.0"?><drugbank xmlns="http://www.drugbank.ca">{inside}</drugbank>'
    (folder / "full database.xml").write_text(text, encoding="utf-8")
    return folder


def write_relish(folder: Path) -> Path:
    """SciRepEval's form of RELISH."""
    folder.mkdir(parents=True, exist_ok=True)

    def article(number: int, text: str, **more: int) -> dict:
        return {"doc_id": number, "title": f"On {text}", "abstract": f"We study {text}.", **more}

    rain = article(3, "rain", score=0)
    rows = [
        {"query": article(1, "lungs"), "candidates": [article(2, "lungs in mice", score=2), rain]},
        {"query": article(4, "teeth"), "candidates": [rain, article(5, "dental care", score=1)]},
        {"query": article(6, "snow"), "candidates": [rain]},
    ]
    (folder / "evaluation.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    return folder


WRITERS = {
    "MedQuADLiveQARetrieval": write_medquad,
    "BioASQ500SnippetsRetrieval": write_bioasq,
    "PubMedQA500Retrieval": write_pubmedqa,
    "BIOSSES": write_biosses,
    "DiseaseOntologyRetrieval": write_ontology,
    "ICliniqRetrieval": write_icliniq,
    "DrugBankRetrieval": write_drugbank,
    "RELISHReranking": write_relish,
}
