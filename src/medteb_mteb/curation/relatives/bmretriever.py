"""The evaluation sets of BMRetriever that mteb lacks, each built from the raw files of its source."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import (
    in_one_line,
    parse_csv,
    parse_json,
    read_text,
)
from medteb_mteb.curation.relatives.write import BuiltSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = [
    "build_bioasq",
    "build_biosses",
    "build_disease_ontology",
    "build_pubmedqa",
]

# The instructions of BMRetriever's released code (arXiv 2404.18443).
PUBMED_PROMPT = "Given a question, retrieve Pubmed passages that answer the question"
CONCEPT_PROMPT = "Given a concept, retrieve passages for its definition"

TOPICS_FILE = "topics.beir-v1.0.0-bioasq.test.tsv.gz"
QRELS_FILE = "qrels.beir-v1.0.0-bioasq.test.txt"


def build_bioasq(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `BioASQ500SnippetsRetrieval`: BEIR's 500 BioASQ topics over documents cut to snippets.

    Args:
        raw: Golden batches of BioASQ (`*_golden.json`), and BEIR's topics and qrels in Anserini's files.
        options: Not used.

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
    queries = dict(
        _topics(raw.one(TOPICS_FILE, "topics of BEIR's BioASQ (github.com/castorini/anserini-tools)"))
    )
    relevant = _trec_qrels(
        raw.one(QRELS_FILE, "qrels of BEIR's BioASQ (github.com/castorini/anserini-tools)")
    )
    corpus = {pmid: _document(texts) for pmid, texts in sorted(snippets.items(), key=lambda one: int(one[0]))}
    left_out: Counter[str] = Counter()
    qrels: dict[str, dict[str, int]] = {}
    for query in queries:
        grades = {pmid: 1 for pmid in relevant.get(query, ()) if pmid in corpus}
        left_out["judgements of documents without a snippet"] += len(relevant.get(query, ())) - len(grades)
        if grades:
            qrels[query] = grades
    left_out["topics without a document"] = len(queries) - len(qrels)
    left_out["gold documents without a snippet"] = len(gold - set(corpus))
    all_relevant = {pmid for pmids in relevant.values() for pmid in pmids}
    return BuiltSet(
        task="BioASQ500SnippetsRetrieval",
        type="Retrieval",
        licence="not specified",
        note=(
            f"The {len(queries)} BioASQ topics of BEIR. The corpus is not PubMed and not the 500,000 "
            f"documents of BMRetriever: it is the {len(corpus):,} documents of BioASQ 7B to 11B in which "
            f"experts marked snippets ({len(gold & set(corpus)):,} of them listed as gold), each cut to its "
            f"snippets. Of the {len(all_relevant):,} relevant documents {len(all_relevant & set(corpus)):,} "
            "have a snippet. Snippets were selected to answer questions, so scores are higher than over "
            "abstracts. BioASQ's own terms apply to the data."
        ),
        queries={query: queries[query] for query in qrels},
        corpus=corpus,
        qrels=qrels,
        prompt=PUBMED_PROMPT,
        left_out=dict(left_out),
    )


def _list(value: Any, path: Path) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BuildError(f"{path}: expected a list of JSON objects under 'questions'.")
    return value


def _pmid(address: Any, path: Path) -> str:
    match = re.search(r"/pubmed/(\d+)/?\Z", str(address))
    if match is None:
        raise BuildError(f"{path}: {str(address)[:80]!r} is not the address of a PubMed document.")
    return match[1]


def _snippet(snippet: Any, path: Path) -> tuple[str, tuple[str, int, str]]:
    try:
        section, start, text = snippet["beginSection"], snippet["offsetInBeginSection"], snippet["text"]
        return _pmid(snippet["document"], path), (str(section), int(start), in_one_line(text))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BuildError):
            raise
        raise BuildError(
            f"{path}: a snippet without document, text and place: {repr(snippet)[:80]}."
        ) from None


def _document(snippets: Iterable[tuple[str, int, str]]) -> tuple[str, str]:
    """Return title and text joined from snippets in abstract order, without snippets inside another one."""
    titles = [text for section, _, text in sorted(snippets) if section == "title" and text]
    texts = [text for section, _, text in sorted(snippets) if section != "title" and text]
    distinct_texts = [text for place, text in enumerate(texts) if not _inside(text, place, texts)]
    title = max(titles, key=len, default="")
    return (title, " ".join(distinct_texts)) if distinct_texts else ("", title)


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
    relevant: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.split()
        if len(words) != 4 or not words[3].lstrip("-").isdigit():
            raise BuildError(f"{path}:{number}: expected query, 0, document and grade.")
        if int(words[3]) > 0 and words[2] not in relevant.setdefault(words[0], []):
            relevant[words[0]].append(words[2])
    return relevant


def build_pubmedqa(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `PubMedQA500Retrieval`: PubMedQA's 500 test questions over abstracts without conclusions.

    Args:
        raw: `test_set.json` (500 questions), `ori_pqal.json` (1,000) and, optionally, `ori_pqaa.json`.
        options: Not used.

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
    return BuiltSet(
        task="PubMedQA500Retrieval",
        type="Retrieval",
        licence="mit",
        note=(
            f"The {len(queries)} test questions of PubMedQA, each the title of an article; relevant is the "
            "abstract of that article without its conclusion. The corpus is the "
            f"{len(corpus):,} abstracts of the labelled questions (PQA-L){added}; BMRetriever had 211,000."
        ),
        queries=queries,
        corpus=corpus,
        qrels={f"q{pmid}": {pmid: 1} for pmid in test},
        prompt=PUBMED_PROMPT,
    )


def build_biosses(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `BIOSSES`: 100 pairs of biomedical sentences with the mean of five people's scores, 0 to 4.

    Args:
        raw: `all.tsv` of github.com/Markus-Zlabinger/ssts.
        options: Not used.

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
            raise BuildError(f"{path}: expected two sentences and a score from 0 to 4: {repr(row)[:90]}.")
        rows.append(
            {"sentence1": row["sentence1"].strip(), "sentence2": row["sentence2"].strip(), "score": score}
        )
    return BuiltSet(
        task="BIOSSES",
        type="STS",
        licence="not specified",
        note=(
            "Pairs of biomedical sentences with the mean of five people's scores, 0 to 4, from a table on "
            "GitHub. That its pairs are those of mteb's copy on the Hub was not checked."
        ),
        rows=rows,
        prompt="Given a sentence, retrieve sentences with the same meaning",
    )


def build_disease_ontology(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `DiseaseOntologyRetrieval`: names of diseases and their definitions, as a substitute for MeSH.

    Args:
        raw: An `.obo` file of the Disease Ontology.
        options: Not used.

    Raises:
        BuildError: The file is missing or holds no terms.
    """
    del options
    path = raw.one("*.obo", "the Disease Ontology (github.com/DiseaseOntology/HumanDiseaseOntology)")
    left_out: Counter[str] = Counter()
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
            left_out["obsolete terms"] += 1
        elif definition is None or not definition[1].strip():
            left_out["terms without a definition"] += 1
        elif f"q{key}" in queries:
            raise BuildError(f"{path}: a second term {key}.")
        else:
            queries[f"q{key}"] = name
            corpus[key] = ("", in_one_line(re.sub(r"\\(.)", r"\1", definition[1])))
            qrels[f"q{key}"] = {key: 1}
    return BuiltSet(
        task="DiseaseOntologyRetrieval",
        type="Retrieval",
        licence="cc0-1.0",
        note=(
            f"Names of diseases and their definitions in the Disease Ontology ({path.name}), an openly "
            "different stand-in for BMRetriever's MeSH set, whose 29,600 concepts and definitions are not "
            "published as a set. Scores are not comparable with its."
        ),
        queries=queries,
        corpus=corpus,
        qrels=qrels,
        prompt=CONCEPT_PROMPT,
        left_out=dict(left_out),
    )
