"""Tasks of English MedTEB out of frozen responses of open APIs: Wikipedia, PubMed, ClinicalTrials.gov."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import entrez, frozen_source, trials, wikipedia
from medteb_mteb.curation.relatives.fetch.tables import (
    PMC_TERMS,
    PUBMED_TERM,
    TRIAL_FIELDS,
    WIKI_CATEGORIES,
    most_of,
)
from medteb_mteb.curation.relatives.negatives import hard_negatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = ["pmc_rows", "pubmed_pairs", "pubmed_titles", "trial_pairs", "trial_retrieval", "wiki_rows"]

#: Most rows of classification and clustering, and of pairs and retrieval, as published.
MOST_LABELLED, MOST_ROWS = 8_192, 16_384
#: Sections are longer than so many characters.
SHORTEST = 50
#: Hard negatives are drawn from so many nearest texts.
NEAREST = 64
SEED = 42


def wiki_rows(raw: Raw, task: str) -> list[dict[str, str]]:
    """Sections of pages, labelled with the category of the page.

    Args:
        raw: Frozen responses of Wikipedia.
        task: Name of the task.

    Raises:
        BuildError: They were fetched for other tasks, or a category is empty.
    """
    frozen = frozen_source(raw, "wikipedia")

    def of_label(category: str) -> Iterable[str]:
        most = min(most_of(task), frozen.most("categories", category))
        for page in wikipedia.members(frozen.ask, category, most):
            yield from (text for text in wikipedia.sections(frozen.ask, page) if len(text) > SHORTEST)

    return _labelled(task, {category: of_label(category) for category in WIKI_CATEGORIES[task]})


def pmc_rows(raw: Raw, task: str) -> list[dict[str, str]]:
    """Abstracts, or else introductions, labelled with the term that found the article.

    Args:
        raw: Frozen responses of PubMed Central.
        task: Name of the task.

    Raises:
        BuildError: They were fetched for other tasks, or a term finds nothing.
    """
    frozen = frozen_source(raw, "pmc")
    return _labelled(
        task,
        {
            term: entrez.pmc_texts(frozen.ask, term, min(most_of(task), frozen.most("terms", term)))
            for term in PMC_TERMS[task]
        },
    )


def _labelled(task: str, texts: Mapping[str, Iterable[str]]) -> list[dict[str, str]]:
    """Rows with the first label of every text; those beyond the most are left out by lot."""
    label_of: dict[str, str] = {}
    for label, found in texts.items():
        for text in found:
            label_of.setdefault(text, label)
    if empty := set(texts) - set(label_of.values()):
        raise BuildError(
            f"{task}: nothing was found for {', '.join(sorted(empty))}; a category that was renamed, or a "
            "fetch of too few items."
        )
    rows = [{"text": text, "label": label} for text, label in label_of.items()]
    if len(rows) <= MOST_LABELLED:
        return rows
    kept = sorted(random.Random(SEED).sample(range(len(rows)), MOST_LABELLED))
    return [rows[i] for i in kept]


def trial_retrieval(raw: Raw, task: str) -> list[dict[str, str]]:
    """Official titles, and the description or the outcomes of the same study.

    Args:
        raw: Frozen responses of ClinicalTrials.gov.
        task: Name of the task.
    """
    return [{"query": first, "corpus": second} for first, second in _trial_texts(raw, task)[:MOST_ROWS]]


def trial_pairs(raw: Raw, task: str, negatives: str) -> list[dict[str, str | int]]:
    """Official titles with the text of the same study, label 1, and with that of a near one, label 0.

    Args:
        raw: Frozen responses of ClinicalTrials.gov.
        task: Name of the task.
        negatives: How near texts are found, as `hard_negatives` takes it.
    """
    return _pairs(_trial_texts(raw, task), negatives)


def _trial_texts(raw: Raw, task: str) -> list[tuple[str, str]]:
    frozen = frozen_source(raw, "clinical-trials")
    extent = {"studies": frozen.most("studies"), "page": frozen.most("page")}
    found = trials.studies(frozen.ask, extent)
    return _distinct((study["officialTitle"], study[TRIAL_FIELDS[task]]) for study in found)


def pubmed_titles(raw: Raw) -> list[dict[str, str]]:
    """Titles, and the abstracts of the same articles.

    Args:
        raw: Frozen responses of PubMed.
    """
    return [{"query": title, "corpus": abstract} for title, abstract in _pubmed_texts(raw)[:MOST_ROWS]]


def pubmed_pairs(raw: Raw, negatives: str) -> list[dict[str, str | int]]:
    """Titles with the abstract of the same article, label 1, and with that of a near one, label 0.

    Args:
        raw: Frozen responses of PubMed.
        negatives: How near texts are found, as `hard_negatives` takes it.
    """
    return _pairs(_pubmed_texts(raw), negatives)


def _pubmed_texts(raw: Raw) -> list[tuple[str, str]]:
    frozen = frozen_source(raw, "pubmed")
    return _distinct(entrez.pubmed_articles(frozen.ask, PUBMED_TERM, frozen.most("terms", PUBMED_TERM)))


def _distinct(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(pair for pair in pairs if all(pair)))


def _pairs(texts: list[tuple[str, str]], negatives: str) -> list[dict[str, str | int]]:
    """As many positives as negatives, at most `MOST_ROWS` together."""
    texts = texts[: MOST_ROWS // 2]
    rows: list[dict[str, str | int]] = []
    near = hard_negatives([second for _, second in texts], NEAREST, negatives) if texts else []
    for (first, second), other in zip(texts, near, strict=True):
        if other is not None:
            rows.append({"sentence1": first, "sentence2": second, "label": 1})
            rows.append({"sentence1": first, "sentence2": texts[other][1], "label": 0})
    return rows
