"""Sets whose raw files are public or a user's own: MedQuAD with LiveQA's grades, BMRetriever's sets."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import read_json
from mar_st.text.values import as_id
from tools.relatives.raw import Built, clean, in_one_line, parse_xml, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tools.relatives.raw import Raw

# The instructions of BMRetriever's released code (arXiv 2404.18443).
_PUBMED = "Given a question, retrieve Pubmed passages that answer the question"
MEDQUAD = "the archive or checkout of github.com/abachaa/MedQuAD"
_GRADES_ZIP = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers.zip"
_QUESTIONS = "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml"
#: Elements with the text of a LiveQA question, by form; a later one is used if the earlier ones are empty.
QUERY_FORMS = {
    "original": ("Original-Question",),
    "paraphrase": ("NIST-PARAPHRASE", "NLM-Summary"),
    "summary": ("NLM-Summary",),
}


class AnswerPair(NamedTuple):
    """A question of a page and the page's answer, with the id of collection, page and pair."""

    id: str
    question: str
    answer: str

    @property
    def key(self) -> tuple[str, str]:
        """Return what makes two pairs the same."""
        return in_one_line(self.question).lower(), in_one_line(self.answer).lower()


def medquad_pairs(raw: Raw) -> tuple[list[AnswerPair], Counter[str]]:
    """Return the answered pairs of all collections of MedQuAD, each once, and what was left out."""
    pairs: dict[tuple[str, str], AnswerPair] = {}
    left_out: Counter[str] = Counter()
    for name, data in raw.members("MedQuAD*.*", r"(^|/)\d+_\w+_QA(_XML)?/[^/]+\.xml$"):
        collection, page = re.sub(r"_XML$", "", name.split("/")[-2]), name.split("/")[-1][:-4]
        for element in parse_xml(data, name).iter("QAPair"):
            question, answer = in_one_line(element.findtext("Question")), clean(element.findtext("Answer"))
            number = element.get("pid") or len(pairs)
            pair = AnswerPair(f"{collection}/{page}-{number}", question, answer)
            if not question or not answer:
                left_out["pairs without an answer"] += 1
            elif pair.key in pairs:
                left_out["repeated pairs"] += 1
            else:
                pairs[pair.key] = pair
    if not pairs:
        raise MarError(f"{raw.folder} holds no MedQuAD answers; expected {MEDQUAD}.")
    return list(pairs.values()), left_out


def live_qa(raw: Raw, queries: str = "original", grades: str = "lower") -> Built:
    """Build `MedQuADLiveQARetrieval`: LiveQA questions, MedQuAD's answers, grades by people as gains 0 to 3.

    Args:
        raw: MedQuAD and the LiveQA test questions.
        queries: Form of the questions, a key of `QUERY_FORMS`.
        grades: `lower` or `higher`: the grade that counts if an answer has two.
    """
    questions, judged = _live_questions(raw, queries), _judged_answers(raw)
    name, data = _in_grades_zip(raw, r"(^|/)(?!__MACOSX).*qrels_LiveQAMed2017[^/]*\.txt$")
    gains: dict[str, dict[str, int]] = {}
    twice: set[tuple[str, str]] = set()
    lines = data.decode("utf-8-sig").splitlines()
    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"(\d+) ([1-4])-\w+ (\S+)", line.strip())
        if match is None or match[1] not in questions or match[3] not in judged:
            raise MarError(
                f"{name}:{number}: expected QUESTION GRADE-NAME ANSWER, both known, got {line[:60]!r}."
            )
        row, gain = gains.setdefault(match[1], {}), int(match[2]) - 1
        before = row.get(match[3], gain)
        if before != gain:
            twice.add((match[1], match[3]))
        row[match[3]] = min(before, gain) if grades == "lower" else max(before, gain)
    pairs, left_out = medquad_pairs(raw)
    known = {pair.key for pair in judged.values()}
    ungraded = [pair for pair in pairs if pair.key not in known]
    positive = {question: row for question, row in gains.items() if any(row.values())}
    left_out["pairs that are among the graded answers"] = len(pairs) - len(ungraded)
    left_out["questions without an answer that is at least related"] = len(gains) - len(positive)
    return Built(
        "Retrieval",
        "cc-by-4.0",
        "Consumer health questions of TREC 2017 LiveQA (medical task) against the answers of MedQuAD, with "
        f"{len(lines):,} grades by people: 1 incorrect, 2 related, 3 incomplete, 4 excellent, as gains 0, "
        f"1, 2, 3 (the track's own scale). {len(twice):,} answers have two different grades for one "
        f"question; the {grades} one counts. A document is an answer with the question of its page as title. "
        "Answers that were not graded count as not relevant: judged@10 and condensed nDCG say how much that "
        "matters. MedQuAD's answers from three MedlinePlus collections were removed by its authors; of those "
        "only graded ones are here.",
        queries={f"TQ{question}": questions[question] for question in positive},
        corpus={pair.id: (pair.question, pair.answer) for pair in [*judged.values(), *ungraded]},
        qrels={f"TQ{question}": row for question, row in positive.items()},
        prompt="Given a consumer health question, retrieve answers from trusted medical sources",
        left_out=left_out,
        options={"queries": queries, "grades": grades},
    )


def _in_grades_zip(raw: Raw, pattern: str) -> tuple[str, bytes]:
    """Return the matching file of the zip of grades, which is in the folder or in MedQuAD's archive."""
    beside = raw.find(_GRADES_ZIP)
    content = beside[0].read_bytes() if beside else next(raw.members("MedQuAD*.*", re.escape(_GRADES_ZIP)))[1]
    members = [one for one in unpacked(_GRADES_ZIP, content, pattern) if "__MACOSX" not in one[0]]
    return members[0]


def _judged_answers(raw: Raw) -> dict[str, AnswerPair]:
    """Return the graded answers by id, each with the question that it answers in its source."""
    import csv  # lazy: only here
    import io  # lazy: only here

    name, data = _in_grades_zip(raw, r"Answers-retrieved-from-MedQuAD\.csv$")
    answers: dict[str, AnswerPair] = {}
    for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")):
        form = r"Question: (?P<question>.*?)\nURL: (?P<url>\S*)\nAnswer: (?P<answer>.*)\Z"
        parts = re.match(form, row["Answer"], re.DOTALL)
        if parts is None:
            raise MarError(f"{name}: {row['AnswerID']} is not Question, URL and Answer.")
        question = parts["question"].partition("(Also called:")[0]
        # Every text ends with a parenthesis that is not in its source.
        answer = clean(re.sub(r"\)\s*\Z", "", parts["answer"]))
        answers[row["AnswerID"]] = AnswerPair(row["AnswerID"], in_one_line(question), answer)
    return answers


def _live_questions(raw: Raw, form: str) -> dict[str, str]:
    """Return the LiveQA test questions by number."""
    path = raw.one(_QUESTIONS, "the test questions of github.com/abachaa/LiveQA_MedicalTask_TREC2017")
    questions: dict[str, str] = {}
    for question in parse_xml(path.read_bytes(), str(path)).iter("NLM-QUESTION"):
        texts = []
        for tag in QUERY_FORMS[form]:
            parts = question.find(tag)
            inside = [] if parts is None else [clean(part.text) for part in [parts, *parts]]
            # Some subjects only repeat the beginning of the message.
            distinct = [one for one in inside if one and not any(one in o and one != o for o in inside)]
            texts.append("\n".join(dict.fromkeys(distinct)))
        number, text = (question.get("qid") or "").removeprefix("TQ"), next(filter(None, texts), "")
        if not number.isdigit() or not text or number in questions:
            raise MarError(
                f"{path}: question {question.get('qid')!r} has no number, no text, or comes twice."
            )
        questions[number] = text
    return questions


def bioasq(raw: Raw) -> Built:
    """Build `BioASQ500SnippetsRetrieval`: BEIR's 500 BioASQ topics over documents cut to snippets."""
    snippets: dict[str, set[tuple[str, int, str]]] = {}
    gold: set[str] = set()
    for path in raw.find("*_golden.json", "golden batches of BioASQ (MIRAGE: rawdata/bioasq)"):
        for question in read_json(path)["questions"]:
            gold.update(map(_pmid, question.get("documents") or ()))
            for one in question.get("snippets") or ():
                place = (str(one["beginSection"]), int(one["offsetInBeginSection"]), in_one_line(one["text"]))
                snippets.setdefault(_pmid(one["document"]), set()).add(place)
    of_beir = "BEIR's BioASQ (github.com/castorini/anserini-tools)"
    topics = gzip.decompress(raw.one("topics.beir-v1.0.0-bioasq.test.tsv.gz", of_beir).read_bytes()).decode()
    queries = {line.partition("\t")[0]: in_one_line(line.partition("\t")[2]) for line in topics.splitlines()}
    relevant: dict[str, dict[str, int]] = {}
    for line in raw.one("qrels.beir-v1.0.0-bioasq.test.txt", of_beir).read_text("utf-8").splitlines():
        query, _, document, grade = line.split()
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = 1
    corpus = {pmid: _document(texts) for pmid, texts in sorted(snippets.items(), key=lambda one: int(one[0]))}
    qrels = {query: {d: 1 for d in relevant.get(query, ()) if d in corpus} for query in queries}
    judged = sum(len(relevant.get(query, ())) for query in queries)
    wanted = {pmid for row in relevant.values() for pmid in row}
    return Built(
        "Retrieval",
        "not specified",
        f"The {len(queries)} BioASQ topics of BEIR. The corpus is not PubMed and not the 500,000 "
        f"documents of BMRetriever: it is the {len(corpus):,} documents of BioASQ 7B to 11B in which "
        f"experts marked snippets ({len(gold & set(corpus)):,} of them listed as gold), each cut to its "
        f"snippets. Of the {len(wanted):,} relevant documents {len(wanted & set(corpus)):,} "
        "have a snippet. Snippets were selected to answer questions, so scores are higher than over "
        "abstracts. BioASQ's own terms apply to the data.",
        queries={query: queries[query] for query, row in qrels.items() if row},
        corpus=corpus,
        qrels={query: row for query, row in qrels.items() if row},
        prompt=_PUBMED,
        left_out={
            "judgements of documents without a snippet": judged - sum(map(len, qrels.values())),
            "topics without a document": sum(not row for row in qrels.values()),
            "gold documents without a snippet": len(gold - set(corpus)),
        },
    )


def _pmid(address: Any) -> str:
    match = re.search(r"/pubmed/(\d+)/?\Z", str(address))
    if match is None:
        raise MarError(f"{str(address)[:80]!r} is not the address of a PubMed document.")
    return match[1]


def _document(snippets: Iterable[tuple[str, int, str]]) -> tuple[str, str]:
    """Return title and text joined from snippets in abstract order, without snippets inside another one."""
    titles = [text for section, _, text in sorted(snippets) if section == "title" and text]
    texts = [text for section, _, text in sorted(snippets) if section != "title" and text]
    kept = [
        text
        for place, text in enumerate(texts)
        if not any(
            text in o and (text != o or there < place) for there, o in enumerate(texts) if there != place
        )
    ]
    title = max(titles, key=len, default="")
    return (title, " ".join(kept)) if kept else ("", title)


def pubmedqa(raw: Raw) -> Built:
    """Build `PubMedQA500Retrieval`: PubMedQA's 500 test questions over abstracts without conclusions."""
    test = read_json(raw.one("test_set.json", "PubMedQA's test split (MIRAGE: rawdata/pubmedqa)"))
    labelled = read_json(raw.one("ori_pqal.json", "PubMedQA's labelled questions (github.com/pubmedqa)"))
    artificial = [read_json(path) for path in raw.find("ori_pqaa.json")]
    corpus: dict[str, tuple[str, str]] = {}
    for rows in (test, labelled, *artificial):
        for pmid, row in rows.items():
            corpus.setdefault(pmid, ("", "\n".join(map(in_one_line, row["CONTEXTS"]))))
    added = " and the artificial ones (PQA-A)" if artificial else ""
    return Built(
        "Retrieval",
        "mit",
        f"The {len(test)} test questions of PubMedQA, each the title of an article; relevant is the "
        "abstract of that article without its conclusion. The corpus is the "
        f"{len(corpus):,} abstracts of the labelled questions (PQA-L){added}; BMRetriever had 211,000.",
        queries={f"q{pmid}": in_one_line(row["QUESTION"]) for pmid, row in test.items()},
        corpus=corpus,
        qrels={f"q{pmid}": {pmid: 1} for pmid in test},
        prompt=_PUBMED,
    )


def biosses(raw: Raw) -> Built:
    """Build `BIOSSES`: 100 pairs of biomedical sentences with the mean of five people's scores, 0 to 4."""
    path = raw.one("all.tsv", "BIOSSES as a table (github.com/Markus-Zlabinger/ssts)")
    rows = [
        {
            **{key: str(values[key]).strip() for key in ("sentence1", "sentence2")},
            "score": float(values["score"]),
        }
        for _, values in read_rows(path)
    ]
    return Built(
        "STS",
        "not specified",
        "Pairs of biomedical sentences with the mean of five people's scores, 0 to 4, from a table on "
        "GitHub. That its pairs are those of mteb's copy on the Hub was not checked.",
        rows=rows,
        prompt="Given a sentence, retrieve sentences with the same meaning",
    )


def disease_ontology(raw: Raw) -> Built:
    """Build `DiseaseOntologyRetrieval`: names of diseases and their definitions, as a substitute for MeSH."""
    path = raw.one("*.obo", "the Disease Ontology (github.com/DiseaseOntology/HumanDiseaseOntology)")
    left_out: Counter[str] = Counter()
    queries, corpus = {}, {}
    for term in path.read_text("utf-8").split("\n[")[1:]:
        kind, _, body = term.partition("]\n")
        fields = dict(reversed([line.partition(": ")[::2] for line in body.split("\n")]))  # the first of each
        definition = re.match(r'"((?:[^"\\]|\\.)*)"', fields.get("def", ""))
        if kind != "Term":
            continue
        if fields.get("is_obsolete", "").startswith("true"):
            left_out["obsolete terms"] += 1
        elif definition is None or not definition[1].strip():
            left_out["terms without a definition"] += 1
        else:
            queries[f"q{fields['id']}"] = in_one_line(fields["name"])
            corpus[fields["id"]] = ("", in_one_line(re.sub(r"\\(.)", r"\1", definition[1])))
    return Built(
        "Retrieval",
        "cc0-1.0",
        f"Names of diseases and their definitions in the Disease Ontology ({path.name}), an openly "
        "different stand-in for BMRetriever's MeSH set, whose 29,600 concepts and definitions are not "
        "published as a set. Scores are not comparable with its.",
        queries=queries,
        corpus=corpus,
        qrels={query: {query[1:]: 1} for query in queries},
        prompt="Given a concept, retrieve passages for its definition",
        left_out=left_out,
    )


def icliniq(raw: Raw) -> Built:
    """Build `ICliniqRetrieval`: patients' questions on iCliniq and their doctors' answers."""
    path = raw.one("iCliniq.json", "questions and answers of iCliniq (github.com/Kent0n-Li/ChatDoctor)")
    return _one_to_one(
        ((clean(row.get("input")), clean(row.get("answer_icliniq"))) for row in read_json(path)),
        "not specified",
        "Patients' questions on iCliniq and their doctors' answers, from a copy of ChatDoctor's file. "
        "The texts are people's health questions: keep the copy where such data may lie.",
        "Given a question with context from online medical forums, retrieve responses that best answer the "
        "question",
    )


def drugbank(raw: Raw) -> Built:
    """Build `DrugBankRetrieval`: names of drugs and their descriptions, from a user's own licensed copy."""
    paths = raw.find("drugbank.xml") + raw.find("full database.xml")
    if len(paths) != 1:
        raise MarError(f"{raw.folder}: expected one drugbank.xml or 'full database.xml' (licensed).")
    root = parse_xml(paths[0].read_bytes(), str(paths[0]))
    prefix = root.tag[: root.tag.rfind("}") + 1]
    return _one_to_one(
        (
            (in_one_line(drug.findtext(f"{prefix}name")), clean(drug.findtext(f"{prefix}description")))
            for drug in root.findall(f"{prefix}drug")
        ),
        "https://go.drugbank.com/legal/terms_of_use",
        "Names of drugs and their descriptions in DrugBank, from a user's own copy under DrugBank's "
        "licence. Which 4,100 drugs BMRetriever took is not published; here every drug with a "
        "description counts.",
        "Given a drug, retrieve passages for its definition",
    )


def _one_to_one(pairs: Iterable[tuple[str, str]], licence: str, note: str, prompt: str) -> Built:
    """Return a set of query-document pairs; equal queries and equal documents are merged."""
    left_out: Counter[str] = Counter()
    queries: dict[str, str] = {}
    documents: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for query, document in pairs:
        if not query or not document:
            left_out["pairs with an empty text"] += 1
            continue
        left_out["repeated queries"] += query in queries
        left_out["repeated documents"] += document in documents
        key = queries.setdefault(query, f"q{len(queries)}")
        qrels.setdefault(key, {})[documents.setdefault(document, f"d{len(documents)}")] = 1
    return Built(
        "Retrieval",
        licence,
        note,
        queries={key: text for text, key in queries.items()},
        corpus={key: ("", text) for text, key in documents.items()},
        qrels=qrels,
        prompt=prompt,
        left_out=left_out,
    )


def relish(raw: Raw) -> Built:
    """Build `RELISHReranking`: articles, each with candidates that its authors graded 0, 1 or 2."""
    files = raw.find("evaluation*.parquet") or raw.find(
        "evaluation*.jsonl", "RELISH in SciRepEval's layout (Hub: allenai/scirepeval, relish)"
    )
    corpus: dict[str, tuple[str, str]] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    left_out: Counter[str] = Counter()
    for place, row in (one for file in files for one in read_rows(file)):
        key, title, abstract = _article(row["query"], place)
        grades: dict[str, int] = {}
        for candidate in row["candidates"]:
            document, *texts = _article(candidate, place)
            if candidate.get("score") not in (0, 1, 2):
                raise MarError(f"{place}: score {candidate.get('score')!r} is not 0, 1 or 2.")
            corpus.setdefault(document, (texts[0], texts[1]))
            grades[document] = int(candidate["score"])
        if any(grades.values()):
            queries[f"q{key}"], qrels[f"q{key}"] = f"{title}\n{abstract}".strip(), grades
        else:
            left_out["articles without a relevant candidate"] += 1
    return Built(
        "Reranking",
        "odc-by",
        "Articles with candidates that their authors graded 2 relevant, 1 partly, 0 not (RELISH, in "
        "SciRepEval's layout). MAP takes 1 and 2 as relevant, nDCG the grades.",
        queries=queries,
        corpus=corpus,
        qrels=qrels,
        candidates={query: list(row) for query, row in qrels.items()},
        prompt="Given an article, retrieve Pubmed articles that are relevant to this article",
        left_out=left_out,
    )


def _article(value: Mapping[str, Any], place: str) -> tuple[str, str, str]:
    key = as_id(value.get("doc_id"))
    title, abstract = (in_one_line(value.get(k)) for k in ("title", "abstract"))
    if key is None or not (title or abstract):
        raise MarError(f"{place}: an article without doc_id and text.")
    return key, title, abstract


SETS = {
    "MedQuADLiveQARetrieval": live_qa,
    "BioASQ500SnippetsRetrieval": bioasq,
    "PubMedQA500Retrieval": pubmedqa,
    "BIOSSES": biosses,
    "ICliniqRetrieval": icliniq,
    "DiseaseOntologyRetrieval": disease_ontology,
    "RELISHReranking": relish,
    "DrugBankRetrieval": drugbank,
}
