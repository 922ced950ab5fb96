"""MedQuAD's pairs, and the graded answers of TREC LiveQA."""

from __future__ import annotations

import shutil
import zipfile

import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import (
    GRADED,
    GRADES,
    SOURCES,
    graded_zip,
    write_live_questions,
    write_medquad,
)

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import build_set
from medteb_mteb.curation.relatives import medquad as reading
from medteb_mteb.curation.relatives.medquad import (
    AnswerPair,
    Grade,
    read_grades,
    read_judged_answers,
    read_live_questions,
    read_pairs,
)
from medteb_mteb.curation.relatives.raw import Raw
from medteb_mteb.tasks.relatives import MedQuADLiveQARetrieval

ZIP = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers.zip"


@pytest.fixture
def pages(tmp_path):
    """Writes pages of one collection: `pages(**{name: inside})` -> the raw files."""

    def write(**inside):
        folder = tmp_path / "raw" / "1_CancerGov_QA"
        folder.mkdir(parents=True)
        for name, pairs in inside.items():
            text = f"<Document><QAPairs>{pairs}</QAPairs></Document>"
            (folder / f"{name}.xml").write_text(text, encoding="utf-8")
        return Raw(tmp_path / "raw")

    return write


def pair(question, answer, pid=""):
    number = f' pid="{pid}"' if pid else ""
    return f"<QAPair{number}><Question>{question}</Question><Answer>{answer}</Answer></QAPair>"


@pytest.mark.parametrize("packed", [True, False])
def test_pairs_come_once_in_the_order_of_collections_and_pages(tmp_path, packed):
    pairs, left_out = read_pairs(Raw(write_medquad(tmp_path / "raw", packed=packed)))
    assert pairs == [
        AnswerPair(
            "1_CancerGov_QA/0000001-1", "What is a mole ?", "A mole is a spot of pigment\non the skin."
        ),
        AnswerPair(
            "1_CancerGov_QA/0000001-2",
            "How is a mole checked ?",
            "A doctor looks at its edge, its colour and its size.",
        ),
        AnswerPair("8_NHLBI_QA/0000003-1", "What is asthma ?", "Asthma is a disease of the airways & lungs."),
    ]
    assert left_out == {"pairs without an answer": 1, "repeated pairs": 1}


def test_pairs_that_differ_only_in_blanks_and_capitals_are_repetitions(pages):
    pairs, left_out = read_pairs(
        pages(a=pair("Why?", "So.", 1) + pair(" WHY?\n", "so. ", 2) + pair("Why?", "No", 3))
    )
    assert [one.answer for one in pairs] == ["So.", "No"]
    assert left_out == {"repeated pairs": 1}


def test_two_pairs_with_one_id_are_refused(pages):
    raw = pages(a=pair("Why?", "So.", 1) + pair("How?", "Thus.", 1))
    with pytest.raises(BuildError, match=r"a\.xml: two pairs have the id '1_CancerGov_QA/a-1'"):
        read_pairs(raw)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<QAPair>", "is not valid XML"),
        ("", "holds no MedQuAD answers; expected medquad: the archive or checkout"),
        (pair("Why?", ""), "holds no MedQuAD answers"),
    ],
)
def test_pages_without_a_pair_are_one_clear_error(pages, page, message):
    with pytest.raises(BuildError, match=message):
        read_pairs(pages(a=page))


def test_two_archives_are_refused(tmp_path):
    folder = write_medquad(tmp_path / "raw")
    (folder / "MedQuAD-master.zip").touch()
    with pytest.raises(BuildError, match=r"has several archives of MedQuAD \(MedQuAD\.tar\.gz, MedQuAD-mas"):
        read_pairs(Raw(folder))


def test_grades_and_graded_answers_are_those_of_the_zip(tmp_path):
    raw = Raw(write_medquad(tmp_path / "raw"))
    assert read_grades(raw) == [Grade(question, answer, int(grade[0])) for question, grade, answer in GRADES]
    answers = read_judged_answers(raw)
    assert answers.keys() == {answer for _, _, answer in GRADES}
    assert answers["ADAM_0000007_Sec1.txt"] == AnswerPair(
        "ADAM_0000007_Sec1.txt", "What is fever ?", "Fever is a high temperature of the body."
    )


@pytest.fixture
def graded(tmp_path):
    """Writes the zip of grades alone: `graded(qrels=..., answers=...)`, and returns the raw files."""

    def write(**contents):
        (tmp_path / ZIP).write_bytes(graded_zip())
        if contents:
            with zipfile.ZipFile(tmp_path / ZIP, "w") as out:
                out.writestr("a/All-qrels_LiveQAMed2017-x.txt", contents.get("qrels", ""))
                out.writestr("a/All-2479-Answers-retrieved-from-MedQuAD.csv", contents.get("answers", ""))
        return Raw(tmp_path)

    return write


def test_the_zip_of_grades_may_be_without_medquad(graded):
    assert len(read_grades(graded())) == len(GRADES)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 5-Excellent A.txt", r"x\.txt:2: expected QUESTION GRADE-NAME ANSWER, got '1 5-Exc"),
        ("1 4-Excellent", r"x\.txt:2: expected"),
        ("TQ1 4-Excellent A.txt", r"x\.txt:2: expected"),
        ("1 4-Excellent A.txt more", r"x\.txt:2: expected"),
    ],
)
def test_a_malformed_grade_is_named_with_its_line(graded, line, message):
    with pytest.raises(BuildError, match=message):
        read_grades(graded(qrels=f"1 4-Excellent A.txt\n{line}\n"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("AnswerID,Answer\nA,no question\n", "A is not Question, URL and Answer"),
        ("AnswerID\nA\n", "no column Answer"),
        (
            'AnswerID,Answer\nA,"Question: q\nURL: \nAnswer: x)"\nA,"Question: q\nURL: \nAnswer: y)"\n',
            "A has two different texts",
        ),
    ],
)
def test_a_malformed_answer_is_named(graded, rows, message):
    with pytest.raises(BuildError, match=message):
        read_judged_answers(graded(answers=rows))


@pytest.mark.timeout(20)
def test_a_question_of_blanks_is_read_at_once(graded):
    row = f'A,"Question: Why?{" " * 400_000}x\nURL: \nAnswer: So.)"'
    assert read_judged_answers(graded(answers=f"AnswerID,Answer\n{row}\n"))["A"].question == "Why? x"


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("original", ["I am hot , what is\na fever", "lungs\nwhat is asthma", "my mole"]),
        ("paraphrase", ["What is fever?", "What is asthma?", "How is a mole checked?"]),
        ("summary", ["Fever?", "What is asthma?", "How is a mole checked?"]),
    ],
)
def test_each_question_has_three_forms(tmp_path, form, texts):
    questions = read_live_questions(Raw(write_medquad(tmp_path / "raw")), form)
    assert questions == dict(zip("123", texts, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('qid="TQ2"', 'qid="TQ1"'), "question 'TQ1' has no number, no text, or comes twice"),
        (('qid="TQ2"', 'qid="two"'), "question 'two' has no number"),
        (('qid="TQ2"', ""), "question None has no number"),
        (("my mole", " "), "question 'TQ3' has no number, no text"),
    ],
)
def test_a_question_without_number_or_text_is_refused(tmp_path, change, message):
    raw = Raw(write_medquad(tmp_path / "raw"))
    (file,) = raw.folder.glob("TREC-*.xml")
    file.write_text(file.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        read_live_questions(raw)


def test_a_grade_of_an_unknown_answer_is_refused(tmp_path):
    raw = Raw(write_medquad(tmp_path / "raw"))
    (raw.folder / ZIP).write_bytes(graded_zip([*GRADES, ("9", "1-Incorrect", next(iter(GRADED)))]))
    with pytest.raises(BuildError, match=r"grades: question 9 or answer .* has no text"):
        reading.build_live_qa(raw, {"queries": "original", "grades": "lower"})


@pytest.mark.thorough
def test_the_real_grades_of_medquad_have_the_known_counts():
    if not (SOURCES / "medquad").exists():
        pytest.skip(f"no raw files of the sources at {SOURCES / 'medquad'}")
    raw = Raw(SOURCES / "medquad")
    grades, answers = reading.read_grades(raw), reading.read_judged_answers(raw)
    assert len(grades) == 2479
    assert len({one.question for one in grades}) == 103
    assert {one.answer for one in grades} == set(answers)
    assert len(answers) == 1935
    counts = [sum(one.grade == grade for one in grades) for grade in (1, 2, 3, 4)]
    assert counts == [1436, 678, 223, 142]
    gains, twice = reading._gains(grades, lower=True)
    assert (sum(map(len, gains.values())), twice) == (2311, 168)
    assert not any(pair.answer.endswith(") ") for pair in answers.values())


def test_grades_are_gains_and_the_lower_of_two_grades_counts(built):
    edition, data = built("MedQuADLiveQARetrieval")
    assert data.qrels == {
        "TQ1": {"ADAM_0000007_Sec1.txt": 3, "NHLBI_0000003_Sec1.txt": 0},
        "TQ2": {"NHLBI_0000003_Sec1.txt": 1, "ADAM_0000007_Sec1.txt": 0},
    }
    assert [row["text"] for row in data.queries] == ["I am hot , what is\na fever", "lungs\nwhat is asthma"]
    corpus = {row["id"]: (row["title"], row["text"]) for row in data.corpus}
    assert corpus == {
        "ADAM_0000007_Sec1.txt": ("What is fever ?", "Fever is a high temperature of the body."),
        "NHLBI_0000003_Sec1.txt": ("What is asthma ?", "Asthma is a disease of the airways & lungs."),
        "CancerGov_0000001_Sec2.txt": (
            "How is a mole checked ?",
            "A doctor looks at its edge, its colour and its size.",
        ),
        "1_CancerGov_QA/0000001-1": ("What is a mole ?", "A mole is a spot of pigment\non the skin."),
    }
    assert edition.extra["left_out"] == {
        "pairs without an answer": 1,
        "repeated pairs": 1,
        "pairs that are among the graded answers": 2,
        "questions without an answer that is at least related": 1,
    }
    assert (
        "2 answers have two different grades for one question; the lower one counts"
        in edition.extra["description"]
    )
    assert data.judged.known
    assert edition.licence == "cc-by-4.0"


def test_an_archive_and_a_checkout_give_the_same_data(tmp_path):
    a = write_medquad(tmp_path / "a")
    b = write_medquad(tmp_path / "b", packed=False)
    first, _ = build_set("MedQuADLiveQARetrieval", a, tmp_path / "x")
    second, _ = build_set("MedQuADLiveQARetrieval", b, tmp_path / "y")
    assert first.files == second.files
    assert first.digest != second.digest  # the manifest says from what files


@pytest.mark.slow
def test_the_real_medquad_has_the_documented_size(tmp_path, real):
    """With made-up texts for the questions, whose file has no licence."""
    (folder,) = real("medquad")
    (tmp_path / "raw").mkdir()
    shutil.copy(folder / "MedQuAD.tar.gz", tmp_path / "raw")
    numbers = sorted({one.question for one in reading.read_grades(Raw(folder))})
    write_live_questions(tmp_path / "raw", {number: f"question {number}" for number in numbers})
    edition, _ = build_set("MedQuADLiveQARetrieval", tmp_path / "raw", tmp_path / "data")
    assert (edition.counts["queries"], edition.counts["corpus"]) == MedQuADLiveQARetrieval.built_size
