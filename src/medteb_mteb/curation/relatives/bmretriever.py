"""The evaluation sets of BMRetriever that mteb lacks, each from the raw files of its source."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import (
    clean,
    in_one_line,
    parse_csv,
    parse_json,
    parse_jsonl,
    parse_xml,
    read_bytes,
    read_text,
)
from medteb_mteb.curation.relatives.write import Built
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.rows import iter_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = [
    "build_bioasq",
    "build_biosses",
    "build_disease_ontology",
    "build_drugbank",
    "build_icliniq",
    "build_pubmedqa",
    "build_relish",
]

# The instructions of BMRetriever's released code (arXiv 2404.18443).
PUBMED_PROMPT = "Given a question, retrieve Pubmed passages that answer the question"
DIALOGUE_PROMPT = (
    "Given a question with context from online medical forums, "
    "retrieve responses that best answer the question"
)
DRUG_PROMPT = "Given a drug, retrieve passages for its definition"
CONCEPT_PROMPT = "Given a concept, retrieve passages for its definition"
ARTICLE_PROMPT = "Given an article, retrieve Pubmed articles that are relevant to this article"

TOPICS = "topics.beir-v1.0.0-bioasq.test.tsv.gz"
QRELS = "qrels.beir-v1.0.0-bioasq.test.txt"


def build_bioasq(raw: Raw, options: Mapping[str, str]) -> Built:
    """`BioASQ500SnippetsRetrieval`: BEIR's 500 BioASQ topics over the snippets of gold documents.

    Args:
        raw: Golden batches of BioASQ (`*_golden.json`), and topics and qrels of BEIR as Anserini keeps them.
        options: None.

    Raises:
        BuildError: A raw file is missing or malformed.
    """
    del options
    snippets: dict[str, set[tuple[str, int, str]]] = {}
    gold: set[str] = set()
    for path in raw.find("*_golden.json", needed="golden batches of BioASQ (MIRAGE: rawdata/bioasq)"):
        for question in _list(parse_json(path, dict).get("questions"), path):
            gold.update(_pmid(address, path) for address in question.get("documents") or ())
            for snippet in question.get("snippets") or ():
                place, text = _snippet(snippet, path)
                snippets.setdefault(place, set()).add(text)
    queries = dict(_topics(raw.one(TOPICS, "topics of BEIR's BioASQ (github.com/castorini/anserini-tools)")))
    relevant = _trec_qrels(raw.one(QRELS, "qrels of BEIR's BioASQ (github.com/castorini/anserini-tools)"))
    corpus = {pmid: _document(found) for pmid, found in sorted(snippets.items(), key=lambda one: int(one[0]))}
    left: Counter[str] = Counter()
    qrels: dict[str, dict[str, int]] = {}
    for query in queries:
        found = {pmid: 1 for pmid in relevant.get(query, ()) if pmid in corpus}
        left["judgements of documents without a snippet"] += len(relevant.get(query, ())) - len(found)
        if found:
            qrels[query] = found
    left["topics without a document"] = len(queries) - len(qrels)
    left["gold documents without a snippet"] = len(gold - set(corpus))
    every = {pmid for found in relevant.values() for pmid in found}
    return Built(
        task="BioASQ500SnippetsRetrieval",
        type="Retrieval",
        licence="not specified",
        note=(
            f"The {len(queries)} BioASQ topics of BEIR. The corpus is not PubMed and not the 500,000 "
            "documents of "
            f"BMRetriever: it is the {len(corpus):,} gold documents of BioASQ 7B to 11B, each cut to the "
            "snippets "
            f"that experts marked in it. Of the {len(every):,} relevant documents "
            f"{len(every & set(corpus)):,} "
            "have a snippet. Snippets answer questions by their making, so scores are higher than over "
            "abstracts. "
            "BioASQ's own terms apply to the data."
        ),
        queries={query: queries[query] for query in qrels},
        corpus=corpus,
        qrels=qrels,
        prompt=PUBMED_PROMPT,
        left_out=dict(left),
    )


def _list(value: Any, path: Path) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BuildError(f"{path}: expected a list of JSON objects under 'questions'.")
    return value


def _pmid(address: Any, path: Path) -> str:
    found = re.search(r"/pubmed/(\d+)/?\Z", str(address))
    if found is None:
        raise BuildError(f"{path}: {str(address)[:80]!r} is no address of a PubMed document.")
    return found[1]


def _snippet(snippet: Any, path: Path) -> tuple[str, tuple[str, int, str]]:
    try:
        section, start, text = snippet["beginSection"], snippet["offsetInBeginSection"], snippet["text"]
        return _pmid(snippet["document"], path), (str(section), int(start), in_one_line(text))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BuildError):
            raise
        raise BuildError(
            f"{path}: a snippet without document, text and place: {str(snippet)[:80]}."
        ) from None


def _document(snippets: Iterable[tuple[str, int, str]]) -> tuple[str, str]:
    """Title and text out of snippets, in the order of the abstract; one inside another is not repeated."""
    titles = [text for section, _, text in sorted(snippets) if section == "title" and text]
    texts = [text for section, _, text in sorted(snippets) if section != "title" and text]
    kept = [text for place, text in enumerate(texts) if not _inside(text, place, texts)]
    title = max(titles, key=len, default="")
    return (title, " ".join(kept)) if kept else ("", title)


def _inside(text: str, place: int, texts: list[str]) -> bool:
    return any(
        text in other and (text != other or there < place)
        for there, other in enumerate(texts)
        if there != place
    )


def _topics(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        query, tab, text = line.partition("\t")
        if not query or not tab or not text.strip():
            raise BuildError(f"{path}:{number}: expected an id, a tab and a question.")
        yield query, in_one_line(text)


def _trec_qrels(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.split()
        if len(words) != 4 or not words[3].lstrip("-").isdigit():
            raise BuildError(f"{path}:{number}: expected query, 0, document and grade.")
        if int(words[3]) > 0 and words[2] not in found.setdefault(words[0], []):
            found[words[0]].append(words[2])
    return found


def build_pubmedqa(raw: Raw, options: Mapping[str, str]) -> Built:
    """`PubMedQA500Retrieval`: the 500 test questions of PubMedQA over abstracts without their conclusions.

    Args:
        raw: `test_set.json` (500 questions), `ori_pqal.json` (1,000) and, if it is there, `ori_pqaa.json`.
        options: None.

    Raises:
        BuildError: A raw file is missing or malformed.
    """
    del options
    test = parse_json(raw.one("test_set.json", "PubMedQA's test split (MIRAGE: rawdata/pubmedqa)"), dict)
    labelled = parse_json(
        raw.one("ori_pqal.json", "PubMedQA's labelled questions (github.com/pubmedqa)"), dict
    )
    artificial = [parse_json(path, dict) for path in raw.find("ori_pqaa.json")]
    corpus: dict[str, tuple[str, str]] = {}
    for name, rows in (
        ("test_set.json", test),
        ("ori_pqal.json", labelled),
        *(("ori_pqaa.json", a) for a in artificial),
    ):
        for pmid, row in rows.items():
            contexts = row.get("CONTEXTS") if isinstance(row, dict) else None
            if (
                not isinstance(contexts, list)
                or not contexts
                or not all(isinstance(one, str) for one in contexts)
            ):
                raise BuildError(f"{name}: {pmid} has no CONTEXTS.")
            corpus.setdefault(pmid, ("", "\n".join(in_one_line(one) for one in contexts)))
    queries = {f"q{pmid}": in_one_line(row.get("QUESTION")) for pmid, row in test.items()}
    if empty := [query for query, text in queries.items() if not text]:
        raise BuildError(f"test_set.json: {empty[0][1:]} has no QUESTION.")
    added = " and the artificial ones (PQA-A)" if artificial else ""
    return Built(
        task="PubMedQA500Retrieval",
        type="Retrieval",
        licence="mit",
        note=(
            f"The {len(queries)} test questions of PubMedQA, each the title of an article; relevant is the "
            "abstract "
            "of that article without its conclusion. The corpus is the "
            f"{len(corpus):,} abstracts of the labelled questions (PQA-L){added}; BMRetriever had 211,000."
        ),
        queries=queries,
        corpus=corpus,
        qrels={f"q{pmid}": {pmid: 1} for pmid in test},
        prompt=PUBMED_PROMPT,
    )


def build_biosses(raw: Raw, options: Mapping[str, str]) -> Built:
    """`BIOSSES`: 100 pairs of biomedical sentences with the mean of five people's scores, 0 to 4.

    Args:
        raw: `all.tsv` of github.com/Markus-Zlabinger/ssts.
        options: None.

    Raises:
        BuildError: The file is missing or malformed.
    """
    del options
    path = raw.one("all.tsv", "BIOSSES as a table (github.com/Markus-Zlabinger/ssts)")
    rows = []
    columns = ("sentence1", "sentence2", "score")
    for row in parse_csv(read_text(path), str(path), columns, delimiter="\t"):
        try:
            score = float(row["score"])
        except ValueError:
            score = -1.0
        if not 0 <= score <= 4 or not row["sentence1"].strip() or not row["sentence2"].strip():
            raise BuildError(f"{path}: expected two sentences and a score from 0 to 4, got {str(row)[:100]}.")
        rows.append(
            {"sentence1": row["sentence1"].strip(), "sentence2": row["sentence2"].strip(), "score": score}
        )
    return Built(
        task="BIOSSES",
        type="STS",
        licence="not specified",
        note=(
            "Pairs of biomedical sentences with the mean of five people's scores, 0 to 4, from a table on "
            "GitHub. "
            "That its pairs are those of mteb's copy on the Hub was not checked."
        ),
        rows=rows,
        prompt="Given a sentence, retrieve sentences with the same meaning",
    )


def build_disease_ontology(raw: Raw, options: Mapping[str, str]) -> Built:
    """`DiseaseOntologyRetrieval`: names of diseases to their definitions, in the place of MeSH.

    Args:
        raw: An `.obo` file of the Disease Ontology.
        options: None.

    Raises:
        BuildError: The file is missing or holds no terms.
    """
    del options
    path = raw.one("*.obo", "the Disease Ontology (github.com/DiseaseOntology/HumanDiseaseOntology)")
    left: Counter[str] = Counter()
    queries, corpus, qrels = {}, {}, {}
    for term in read_text(path).split("\n[")[1:]:
        kind, _, body = term.partition("]\n")
        if kind != "Term":
            continue
        fields = dict(reversed([line.partition(": ")[::2] for line in body.split("\n")]))  # the first of each
        definition = re.match(r'"((?:[^"\\]|\\.)*)"', fields.get("def", ""))
        key, name = fields.get("id", ""), in_one_line(fields.get("name"))
        if not key or not name:
            raise BuildError(f"{path}: a term without id and name: {body[:60]!r}.")
        if fields.get("is_obsolete", "").startswith("true"):
            left["obsolete terms"] += 1
        elif definition is None or not definition[1].strip():
            left["terms without a definition"] += 1
        elif f"q{key}" in queries:
            raise BuildError(f"{path}: a second term {key}.")
        else:
            queries[f"q{key}"] = name
            corpus[key] = ("", in_one_line(re.sub(r"\\(.)", r"\1", definition[1])))
            qrels[f"q{key}"] = {key: 1}
    return Built(
        task="DiseaseOntologyRetrieval",
        type="Retrieval",
        licence="cc0-1.0",
        note=(
            f"Names of diseases and their definitions in the Disease Ontology ({path.name}), an openly "
            "different "
            "stand-in for BMRetriever's MeSH set, whose 29,600 concepts and definitions are not published "
            "as a "
            "set. Scores are not comparable with its."
        ),
        queries=queries,
        corpus=corpus,
        qrels=qrels,
        prompt=CONCEPT_PROMPT,
        left_out=dict(left),
    )


def build_icliniq(raw: Raw, options: Mapping[str, str]) -> Built:
    """`ICliniqRetrieval`: patients' questions on iCliniq to their doctors' answers.

    Args:
        raw: `iCliniq.json` of github.com/Kent0n-Li/ChatDoctor: `input` and `answer_icliniq`.
        options: None.

    Raises:
        BuildError: The file is missing or malformed.
    """
    del options
    path = raw.one("iCliniq.json", "questions and answers of iCliniq (github.com/Kent0n-Li/ChatDoctor)")
    pairs = []
    for number, row in enumerate(parse_json(path, list)):
        if not isinstance(row, dict) or not {"input", "answer_icliniq"} <= set(row):
            raise BuildError(f"{path}: record {number} has no input and answer_icliniq.")
        pairs.append((clean(str(row["input"])), clean(str(row["answer_icliniq"]))))
    return _one_to_one(
        pairs,
        task="ICliniqRetrieval",
        note=(
            "Patients' questions on iCliniq and their doctors' answers, from a copy of ChatDoctor's file. "
            "The "
            "texts are people's health questions: keep the copy where such data may lie."
        ),
        licence="not specified",
        prompt=DIALOGUE_PROMPT,
    )


def build_drugbank(raw: Raw, options: Mapping[str, str]) -> Built:
    """`DrugBankRetrieval`: names of drugs to their descriptions, from a user's own licensed copy.

    Args:
        raw: DrugBank's XML, `drugbank.xml` or `full database.xml`.
        options: None.

    Raises:
        BuildError: The file is missing or malformed.
    """
    del options
    found = raw.find("drugbank.xml") + raw.find("full database.xml")
    if len(found) != 1:
        raise BuildError(
            f"{raw.folder}: expected one drugbank.xml or 'full database.xml' (DrugBank, licensed)."
        )
    root = parse_xml(read_bytes(found[0]), str(found[0]))
    space = re.match(r"\{.*\}", root.tag)
    prefix = space[0] if space else ""
    pairs = [
        (in_one_line(drug.findtext(f"{prefix}name")), clean(drug.findtext(f"{prefix}description")))
        for drug in root.findall(f"{prefix}drug")
    ]
    return _one_to_one(
        pairs,
        task="DrugBankRetrieval",
        note=(
            "Names of drugs and their descriptions in DrugBank, from a user's own copy under DrugBank's "
            "licence. "
            "Which 4,100 drugs BMRetriever took is not published; here every drug with a description counts."
        ),
        licence="https://go.drugbank.com/legal/terms_of_use",
        prompt=DRUG_PROMPT,
    )


def _one_to_one(
    pairs: Iterable[tuple[str, str]], *, task: str, note: str, licence: str, prompt: str
) -> Built:
    """A set with one document per query. Equal documents are one; equal queries have all their documents."""
    left: Counter[str] = Counter()
    queries: dict[str, str] = {}
    documents: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for query, document in pairs:
        if not query or not document:
            left["pairs with an empty text"] += 1
            continue
        left["repeated queries"] += query in queries
        left["repeated documents"] += document in documents
        key = queries.setdefault(query, f"q{len(queries)}")
        qrels.setdefault(key, {})[documents.setdefault(document, f"d{len(documents)}")] = 1
    return Built(
        task=task,
        type="Retrieval",
        licence=licence,
        note=note,
        queries={key: text for text, key in queries.items()},
        corpus={key: ("", text) for text, key in documents.items()},
        qrels=qrels,
        prompt=prompt,
        left_out=dict(left),
    )


def build_relish(raw: Raw, options: Mapping[str, str]) -> Built:
    """`RELISHReranking`: articles, each with candidates that authors graded 0, 1 or 2.

    Args:
        raw: The evaluation split of `allenai/scirepeval`, configuration `relish`: `evaluation*.parquet` or
            `evaluation*.jsonl` with `query` and `candidates`.
        options: None.

    Raises:
        BuildError: The file is missing or malformed.
    """
    del options
    files = raw.find("evaluation*.parquet") or raw.find(
        "evaluation*.jsonl", needed="RELISH in SciRepEval's layout (Hub: allenai/scirepeval, relish)"
    )
    corpus: dict[str, tuple[str, str]] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    left: Counter[str] = Counter()
    for file in files:
        for number, row in enumerate(_rows(file), start=1):
            where = f"{file}: row {number}"
            query, candidates = row.get("query"), row.get("candidates")
            if not isinstance(query, dict) or not isinstance(candidates, list):
                raise BuildError(f"{where}: expected query and candidates.")
            key, title, abstract = _article(query, where)
            grades: dict[str, int] = {}
            for candidate in candidates:
                document, *texts = _article(candidate, where)
                if candidate.get("score") not in (0, 1, 2):
                    raise BuildError(f"{where}: score {candidate.get('score')!r} is not 0, 1 or 2.")
                corpus.setdefault(document, (texts[0], texts[1]))
                grades[document] = int(candidate["score"])
            if any(grades.values()):
                queries[f"q{key}"], qrels[f"q{key}"] = f"{title}\n{abstract}".strip(), grades
            else:
                left["articles without a relevant candidate"] += 1
    return Built(
        task="RELISHReranking",
        type="Reranking",
        licence="not specified",
        note=(
            "Articles with candidates that their authors graded 2 relevant, 1 partly, 0 not (RELISH, in "
            "SciRepEval's layout). MAP takes 1 and 2 as relevant, nDCG the grades."
        ),
        queries=queries,
        corpus=corpus,
        qrels=qrels,
        candidates={query: list(found) for query, found in qrels.items()},
        prompt=ARTICLE_PROMPT,
        left_out=dict(left),
    )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix == ".jsonl":
        yield from parse_jsonl(file)
        return
    problems = Problems(file.parent)
    yield from (row.values for row in iter_rows(file, problems))
    problems.raise_if_any()


def _article(value: Any, where: str) -> tuple[str, str, str]:
    key = value.get("doc_id") if isinstance(value, dict) else None
    title = in_one_line(value.get("title")) if isinstance(value, dict) else ""
    abstract = in_one_line(value.get("abstract")) if isinstance(value, dict) else ""
    if key is None or not (title or abstract):
        raise BuildError(f"{where}: an article without doc_id and text: {str(value)[:80]}.")
    return str(key), title, abstract
