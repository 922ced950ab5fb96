"""The evaluation sets of BMRetriever that need a user's own copy: iCliniq, DrugBank (licensed), RELISH."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from mar_st.text.values import as_id
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import (
    clean,
    in_one_line,
    parse_json,
    parse_xml,
    read_bytes,
)
from medteb_mteb.curation.relatives.streams import parse_jsonl
from medteb_mteb.curation.relatives.write import BuiltSet
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.rows import iter_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = ["build_drugbank", "build_icliniq", "build_relish"]

# The instructions of BMRetriever's released code (arXiv 2404.18443).
DIALOGUE_PROMPT = (
    "Given a question with context from online medical forums, "
    "retrieve responses that best answer the question"
)
DRUG_PROMPT = "Given a drug, retrieve passages for its definition"
ARTICLE_PROMPT = "Given an article, retrieve Pubmed articles that are relevant to this article"


def build_icliniq(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `ICliniqRetrieval`: patients' questions on iCliniq and their doctors' answers.

    Args:
        raw: `iCliniq.json` of github.com/Kent0n-Li/ChatDoctor: `input` and `answer_icliniq`.
        options: Not used.

    Raises:
        BuildError: The file is missing or malformed.
    """
    del options
    path = raw.one("iCliniq.json", "questions and answers of iCliniq (github.com/Kent0n-Li/ChatDoctor)")
    pairs = []
    for number, row in enumerate(parse_json(path, list)):
        if not isinstance(row, dict) or not {"input", "answer_icliniq"} <= set(row):
            raise BuildError(f"{path}: record {number} has no input and answer_icliniq.")
        pairs.append((clean(_text(row["input"])), clean(_text(row["answer_icliniq"]))))
    return _one_to_one(
        pairs,
        task="ICliniqRetrieval",
        note=(
            "Patients' questions on iCliniq and their doctors' answers, from a copy of ChatDoctor's file. "
            "The texts are people's health questions: keep the copy where such data may lie."
        ),
        licence="not specified",
        prompt=DIALOGUE_PROMPT,
    )


def build_drugbank(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `DrugBankRetrieval`: names of drugs and their descriptions, from a user's own licensed copy.

    Args:
        raw: DrugBank's XML, `drugbank.xml` or `full database.xml`.
        options: Not used.

    Raises:
        BuildError: The file is missing or malformed.
    """
    del options
    paths = raw.find("drugbank.xml") + raw.find("full database.xml")
    if len(paths) != 1:
        raise BuildError(
            f"{raw.folder}: expected one drugbank.xml or 'full database.xml' (DrugBank, licensed)."
        )
    root = parse_xml(read_bytes(paths[0]), str(paths[0]))
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
            "licence. Which 4,100 drugs BMRetriever took is not published; here every drug with a "
            "description counts."
        ),
        licence="https://go.drugbank.com/legal/terms_of_use",
        prompt=DRUG_PROMPT,
    )


def _one_to_one(
    pairs: Iterable[tuple[str, str]], *, task: str, note: str, licence: str, prompt: str
) -> BuiltSet:
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
    return BuiltSet(
        task=task,
        type="Retrieval",
        licence=licence,
        note=note,
        queries={key: text for text, key in queries.items()},
        corpus={key: ("", text) for text, key in documents.items()},
        qrels=qrels,
        prompt=prompt,
        left_out=dict(left_out),
    )


def build_relish(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `RELISHReranking`: articles, each with candidates that its authors graded 0, 1 or 2.

    Args:
        raw: The evaluation split of `allenai/scirepeval`, configuration `relish`: `evaluation*.parquet` or
            `evaluation*.jsonl` with `query` and `candidates`.
        options: Not used.

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
    left_out: Counter[str] = Counter()
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
                left_out["articles without a relevant candidate"] += 1
    return BuiltSet(
        task="RELISHReranking",
        type="Reranking",
        licence="odc-by",
        note=(
            "Articles with candidates that their authors graded 2 relevant, 1 partly, 0 not (RELISH, in "
            "SciRepEval's layout). MAP takes 1 and 2 as relevant, nDCG the grades."
        ),
        queries=queries,
        corpus=corpus,
        qrels=qrels,
        candidates={query: list(graded) for query, graded in qrels.items()},
        prompt=ARTICLE_PROMPT,
        left_out=dict(left_out),
    )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix == ".jsonl":
        yield from parse_jsonl(file)
        return
    problems = Problems(file)
    yield from (row.values for row in iter_rows(file, problems))
    problems.raise_if_any()


def _article(value: Any, where: str) -> tuple[str, str, str]:
    key = as_id(value.get("doc_id")) if isinstance(value, dict) else None
    title = in_one_line(_text(value.get("title"))) if isinstance(value, dict) else ""
    abstract = in_one_line(_text(value.get("abstract"))) if isinstance(value, dict) else ""
    if key is None or not (title or abstract):
        raise BuildError(f"{where}: an article without doc_id and text: {repr(value)[:80]}.")
    return key, title, abstract


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
