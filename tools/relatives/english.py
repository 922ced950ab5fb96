"""Rows of the 51 tasks of English MedTEB, and how they differ from the published ones."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.text.words import BM25Index
from medteb_mteb.tasks.english import english_tasks
from tools.relatives import apis
from tools.relatives.fetch import frozen
from tools.relatives.notes import read_notes, read_returns
from tools.relatives.raw import SEED, Draw, Raw, in_one_line
from tools.relatives.sets import medquad_pairs
from tools.relatives.tables import (
    DIAGNOSES,
    FIELD_PAIRS,
    PMC_TERMS,
    PREPRINT_TASKS,
    PUBMED_TERM,
    READMISSIONS,
    TRIAL_FIELDS,
    WIKI_CATEGORIES,
    WIKI_PAIRS,
    most_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Rows = Sequence[Mapping[str, Any]]

#: Maximum rows of classification and clustering, and of pairs and retrieval, as published.
MAX_LABELLED_ROWS, MAX_ROWS = 8_192, 16_384
#: Model of the authors for hard negatives; the alternative is `bm25`.
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def labelled(task: str, texts: Mapping[str, Iterable[str]]) -> Rows:
    """Return rows with the first label of every text; of too many rows, 8,192 are drawn."""
    label_of: dict[str, str] = {}
    for label, of_label in texts.items():
        for text in of_label:
            label_of.setdefault(text, label)
    if empty := set(texts) - set(label_of.values()):
        raise MarError(f"{task}: the raw files hold nothing for {', '.join(sorted(empty))}.")
    rows = [{"text": text, "label": label} for text, label in label_of.items()]
    if len(rows) <= MAX_LABELLED_ROWS:
        return rows
    return [rows[i] for i in sorted(random.Random(SEED).sample(range(len(rows)), MAX_LABELLED_ROWS))]


def distinct(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs in their order, without duplicates and without pairs that have an empty text."""
    return list(dict.fromkeys(pair for pair in pairs if all(pair)))


def retrieval_rows(pairs: Sequence[tuple[str, str]]) -> Rows:
    """Return the first 16,384 pairs as queries with their documents."""
    return [{"query": query, "corpus": document} for query, document in pairs[:MAX_ROWS]]


def pair_rows(
    pairs: Sequence[tuple[str, str]], top: int, negatives: str, groups: Sequence[str] | None = None
) -> Rows:
    """Return as many positives as hard negatives, at most 16,384 together.

    A negative is drawn from the `top` second texts nearest to the positive; those of the same group, and
    equal ones, do not count.

    Args:
        pairs: First texts with their positives.
        top: Number of nearest texts from which a negative is drawn.
        negatives: `minilm` or `bm25`, which finds near texts.
        groups: Group of each pair.
    """
    pairs = pairs[: MAX_ROWS // 2]
    seconds = [second for _, second in pairs]
    of_group = groups or [str(place) for place in range(len(pairs))]
    draw, rows = random.Random(SEED), []
    near = _nearest(seconds, (2 if groups is None else 4) * top + 1, negatives) if pairs else iter(())
    for place, (first, second) in enumerate(pairs):

        def other(i: int, place: int = place) -> bool:
            return seconds[i] != seconds[place] and of_group[i] != of_group[place]

        others = [int(i) for i in next(near) if other(int(i))][:top]
        others = others or [i for i in range(len(pairs)) if other(i)]
        if others:
            rows.append({"sentence1": first, "sentence2": second, "label": 1})
            rows.append({"sentence1": first, "sentence2": seconds[draw.choice(others)], "label": 0})
    return rows


def _nearest(texts: Sequence[str], depth: int, by: str) -> Iterator[np.ndarray]:
    """Yield the indices of the nearest texts of every text, itself included."""
    if by == "bm25":
        import bm25s  # lazy: bm25s

        tokens = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
        index = BM25Index(tokens, k1=1.5)
        yield from (np.argsort(-index.scores(query), kind="stable")[:depth] for query in tokens)
        return
    from sentence_transformers import SentenceTransformer  # lazy: sentence_transformers

    vectors = np.asarray(SentenceTransformer(MINILM).encode(list(texts), normalize_embeddings=True))
    for first in range(0, len(texts), 512):
        yield from np.argsort(-(vectors[first : first + 512] @ vectors.T), axis=1, kind="stable")[:, :depth]


def wiki_texts(raw: Raw, task: str, category: str) -> Iterator[str]:
    """Yield the sections of a category's pages that are longer than 50 characters."""
    responses = frozen(raw, "wikipedia")
    most = min(most_of(task), responses.extent["categories"].get(category, 0))
    for page in apis.wiki_members(responses.ask, category, most):
        yield from (text for text in apis.wiki_sections(responses.ask, page) if len(text) > 50)


def _wiki(task: str, raw: Raw, negatives: str) -> Rows:
    del negatives
    return labelled(task, {one: wiki_texts(raw, task, one) for one in WIKI_CATEGORIES[task]})


def _pmc(task: str, raw: Raw, negatives: str) -> Rows:
    del negatives
    responses = frozen(raw, "pmc")
    limits = {term: min(most_of(task), responses.extent["terms"].get(term, 0)) for term in PMC_TERMS[task]}
    return labelled(task, {term: apis.pmc_texts(responses.ask, term, most) for term, most in limits.items()})


def _trials(task: str, raw: Raw, negatives: str) -> Rows:
    responses = frozen(raw, "clinical-trials")
    studies = apis.trials(responses.ask, responses.extent)
    pairs = distinct((one["officialTitle"], one[TRIAL_FIELDS[task]]) for one in studies)
    return pair_rows(pairs, 64, negatives) if task.startswith("pair") else retrieval_rows(pairs)


def pubmed_texts(raw: Raw) -> list[tuple[str, str]]:
    """Return titles and abstracts of the articles that have both, each pair once."""
    responses = frozen(raw, "pubmed")
    most = responses.extent["terms"][PUBMED_TERM]
    return distinct(apis.pubmed_articles(responses.ask, PUBMED_TERM, most))


def preprint_texts(raw: Raw, server: str) -> list[tuple[str, str]]:
    """Return titles and abstracts of the preprints that have both, each pair once."""
    responses = frozen(raw, server)
    return distinct(apis.preprints(responses.ask, responses.extent))


def _pubmed(task: str, raw: Raw, negatives: str) -> Rows:
    pairs = pubmed_texts(raw)
    return pair_rows(pairs, 64, negatives) if task.startswith("pair") else retrieval_rows(pairs)


def _preprints(server: str, task: str, raw: Raw, negatives: str) -> Rows:
    del task, negatives
    return retrieval_rows(preprint_texts(raw, server))


def _medquad(task: str, raw: Raw, negatives: str) -> Rows:
    del task, negatives
    return retrieval_rows([(pair.question, pair.answer) for pair in medquad_pairs(raw)[0]])


def medmcqa(raw: Raw, name: str = "dev.json") -> Iterator[dict[str, Any]]:
    """Yield MedMCQA's questions: `question`, `options` (4), `answer` (0 to 3), `explanation` (or "")."""
    path = raw.one(name, "MedMCQA as JSON lines (MIRAGE: rawdata/medmcqa)")
    for place, row in read_rows(path):
        options = [in_one_line(row.get(f"op{letter}")) for letter in "abcd"]
        question, answer = in_one_line(row.get("question")), row.get("cop")
        if not question or not all(options) or answer not in (1, 2, 3, 4):
            raise MarError(f"{place}: expected a question, four options and cop from 1 to 4.")
        explanation = in_one_line(row.get("exp"))
        yield {"question": question, "options": options, "answer": answer - 1, "explanation": explanation}


def medqa(raw: Raw, name: str = "*test.jsonl") -> Iterator[dict[str, Any]]:
    """Yield the questions of MedQA: `question`, `options`, `answer` (index)."""
    path = raw.one(name, "MedQA-US as JSON lines (MIRAGE: rawdata/medqa)")
    for place, row in read_rows(path):
        given, letter, question = row.get("options"), row.get("answer_idx"), in_one_line(row.get("question"))
        if not question or not isinstance(given, dict) or letter not in given:
            raise MarError(f"{place}: expected question, options and answer_idx.")
        options = {key: in_one_line(text) for key, text in sorted(given.items())}
        yield {"question": question, "options": list(options.values()), "answer": list(options).index(letter)}


def _exam(read: Callable[[Raw], Iterator[dict[str, Any]]], task: str, raw: Raw, negatives: str) -> Rows:
    del task, negatives
    return [
        {"sentence1": one["question"], "sentence2": option, "label": int(place == one["answer"])}
        for one in read(raw)
        for place, option in enumerate(one["options"])
    ]


def _notes(end: str, task: str, raw: Raw, negatives: str) -> Rows:
    """Return the rows of a task of MIMIC-IV."""
    if end in READMISSIONS:
        return _returns(task, raw, READMISSIONS[end])
    if end in DIAGNOSES:
        label_of = {name.lower(): label for label, names in DIAGNOSES[end].items() for name in names}
        texts: dict[str, list[str]] = {label: [] for label in DIAGNOSES[end]}
        for note in read_notes(raw):
            if note.diagnosis in label_of and note.presented:
                texts[label_of[note.diagnosis]].append(note.presented)
        return labelled(task, texts)
    pairs = english_tasks()[task].type == "PAIR"
    draw = Draw(MAX_ROWS // 2 if pairs else MAX_ROWS)
    for note in read_notes(raw):
        first, second = (note.fields.get(name, "") for name in FIELD_PAIRS[end])
        if first and second:
            group = note.diagnosis or f"admission {note.admission}"
            draw.add(f"{first}\0{second}", ((first, second), group))
    drawn = draw.items()
    texts_of = [pair for pair, _ in drawn]
    return pair_rows(texts_of, 128, negatives, [g for _, g in drawn]) if pairs else retrieval_rows(texts_of)


def _returns(task: str, raw: Raw, days: int) -> Rows:
    """Return complaint and history of notes, half of patients who returned and half of others."""
    returned = read_returns(raw, days)
    draws = {answer: Draw(MAX_LABELLED_ROWS // 2) for answer in (True, False)}
    for note in read_notes(raw):
        if note.presented and note.admission in returned:
            draws[returned[note.admission]].add(note.presented, note.presented)
    each = min(map(len, draws.values()))
    if not each:
        raise MarError(f"{task}: notes of patients who returned and of others are needed.")
    names = {True: "readmitted", False: "not readmitted"}
    return [{"text": t, "label": names[answer]} for answer, draw in draws.items() for t in draw.items(each)]


class Builder(NamedTuple):
    """Builder of a task's rows from its name, raw files, and method of hard negatives; how they differ."""

    make: Callable[[str, Raw, str], Rows]
    differs: str


_OF_DAY = "; of the day when it was fetched"
_NOTES = (
    "from a copy of the user's own; the first discharge summary of an admission, in the sections that "
    "its headings name"
)
_MODEL = "by a model whose revision is not pinned or by BM25"
_PREPRINTS = (
    "titles in the place of GPT-4o's questions: another task; the first 16,384 preprints from "
    "2018-01-01 on in the order of the API, each in its first version there"
)


def _note_builder(name: str) -> Builder:
    end = name.partition("_mimic")[2].removeprefix("iv").removeprefix("_")
    differs = f"{_NOTES}; equal pairs once; at most 16,384 drawn with seed 42"
    if end in READMISSIONS:
        differs = (
            f"{_NOTES}; no stays that ended in death; as many of each label, <= 4,096, drawn with seed 42"
        )
    elif end in DIAGNOSES:
        differs = f"{_NOTES}; complaint and history; equal texts once; 8,192 rows drawn with seed 42"
    elif name.startswith("pair"):
        differs = (
            f"{_NOTES}; equal pairs once; 8,192 drawn with seed 42, with one negative each, of the "
            f"128 texts nearest to the right one that are of another discharge diagnosis, {_MODEL}"
        )
    return Builder(partial(_notes, end), differs)


BUILDERS: dict[str, Builder] = {
    **{name: _note_builder(name) for name in english_tasks() if "_mimic" in name},
    "pairclassification_medmcqa_pair_classification": Builder(
        partial(_exam, medmcqa), "the development split alone, whose answers are public"
    ),
    "pairclassification_medqa_pair_classification": Builder(
        partial(_exam, medqa), "the US test split with four options; the authors do not say which they drew"
    ),
    "retrieval_medquad_dataset": Builder(
        _medquad,
        "raw answers, with the key words of the question, where the authors had GPT-4o rewrite them without; "
        "the first 16,384 distinct pairs with an answer, where the authors drew as many",
    ),
    **dict.fromkeys(
        WIKI_CATEGORIES,
        Builder(
            _wiki,
            "pages of a category and its subcategories in the order of Wikipedia's lists, each section "
            "longer than 50 characters a text, the lead too; a text in two categories has the first one's "
            f"label; 8,192 rows drawn with seed 42{_OF_DAY}",
        ),
    ),
    **dict.fromkeys(
        PMC_TERMS,
        Builder(
            _pmc,
            "open-access articles alone, in the order of the search; the abstract, or else the section "
            "called introduction; a text that two terms find has the first one's label; 8,192 rows drawn "
            f"with seed 42{_OF_DAY}",
        ),
    ),
    **dict.fromkeys(
        TRIAL_FIELDS,
        Builder(
            _trials,
            "the first 17,000 studies in the order of the API; an outcome is its measure and description; "
            "studies without one of the texts and repeated pairs are left out; a negative is one of the 64 "
            f"texts nearest to the right one, {_MODEL}{_OF_DAY}",
        ),
    ),
    "retrieval_pubmed_retrieval": Builder(
        _pubmed, f"titles in the place of GPT-4o's questions: another task; the first 9,999 articles{_OF_DAY}"
    ),
    "pairclassification_pubmed_pair_classification": Builder(
        _pubmed,
        "title and abstract in the place of two sentences by GPT-4o: another task; a negative is one of the "
        f"64 texts nearest to the right one, {_MODEL}{_OF_DAY}",
    ),
    **{
        task: Builder(partial(_preprints, server), f"{_PREPRINTS}{_OF_DAY}")
        for server, task in PREPRINT_TASKS.items()
    },
}
#: Tasks that cannot be built without an LLM.
NEED_LLM = tuple(WIKI_PAIRS)
