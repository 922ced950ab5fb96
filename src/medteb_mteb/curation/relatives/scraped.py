"""Tasks of English MedTEB built from frozen responses of open APIs: Wikipedia, NCBI, trials, preprints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.curation.relatives.fetch import entrez, frozen_source, preprints, trials, wikipedia
from medteb_mteb.curation.relatives.fetch.tables import (
    PMC_TERMS,
    PUBMED_TERM,
    TRIAL_FIELDS,
    WIKI_CATEGORIES,
    WIKI_DEPTHS,
    WIKI_PAIRS,
    most_of,
)
from medteb_mteb.curation.relatives.rows import distinct, labelled, pair_rows, retrieval_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medteb_mteb.curation.relatives.fetch.responses import Frozen
    from medteb_mteb.curation.relatives.raw import Raw

__all__ = [
    "NEGATIVE_CANDIDATES",
    "pmc_rows",
    "preprint_texts",
    "preprint_titles",
    "pubmed_pairs",
    "pubmed_texts",
    "pubmed_titles",
    "trial_pairs",
    "trial_retrieval",
    "wiki_rows",
    "wiki_sections",
]

#: Sections with this number of characters or fewer are left out.
SHORT_SECTION_CHARACTERS = 50
#: Number of nearest texts from which hard negatives are drawn.
NEGATIVE_CANDIDATES = 64
_EMPTY_LABEL_HINT = "a category that was renamed, or a fetch of too few items"


def wiki_rows(raw: Raw, task: str) -> list[dict[str, str]]:
    """Return sections of pages, labelled with the category of the page.

    Args:
        raw: Frozen responses of Wikipedia.
        task: Name of the task.

    Raises:
        BuildError: The responses were fetched for other tasks, or a category is empty.
    """
    frozen = frozen_source(raw, "wikipedia")
    texts = {category: _sections(frozen, task, category) for category in WIKI_CATEGORIES[task]}
    return labelled(task, texts, _EMPTY_LABEL_HINT)


def wiki_sections(raw: Raw, task: str) -> list[str]:
    """Return the sections about which the sentences of a pair task are written, each text once.

    Args:
        raw: Frozen responses of Wikipedia.
        task: Name of the task.

    Raises:
        BuildError: The responses were fetched for other tasks.
    """
    frozen = frozen_source(raw, "wikipedia")
    by_category = (_sections(frozen, task, category) for category in WIKI_PAIRS[task])
    return list(dict.fromkeys(text for texts in by_category for text in texts))


def _sections(frozen: Frozen, task: str, category: str) -> Iterator[str]:
    """Yield the long enough sections of a category's pages."""
    most = min(most_of(task), frozen.most("categories", category))
    depth = frozen.most("depths", category) if category in WIKI_DEPTHS else 1
    for page in wikipedia.members(frozen.ask, category, most, depth):
        yield from (
            text for text in wikipedia.sections(frozen.ask, page) if len(text) > SHORT_SECTION_CHARACTERS
        )


def pmc_rows(raw: Raw, task: str) -> list[dict[str, str]]:
    """Return abstracts, or else introductions, labelled with the search term that found the article.

    Args:
        raw: Frozen responses of PubMed Central.
        task: Name of the task.

    Raises:
        BuildError: The responses were fetched for other tasks, or a term finds nothing.
    """
    frozen = frozen_source(raw, "pmc")
    return labelled(
        task,
        {
            term: entrez.pmc_texts(frozen.ask, term, min(most_of(task), frozen.most("terms", term)))
            for term in PMC_TERMS[task]
        },
        _EMPTY_LABEL_HINT,
    )


def trial_retrieval(raw: Raw, task: str) -> list[dict[str, str]]:
    """Return official titles with the description or the outcomes of the same study.

    Args:
        raw: Frozen responses of ClinicalTrials.gov.
        task: Name of the task.
    """
    return retrieval_rows(_trial_texts(raw, task))


def trial_pairs(raw: Raw, task: str, negatives: str) -> list[dict[str, str | int]]:
    """Return official titles with the text of the same study (label 1) and of a similar study (label 0).

    Args:
        raw: Frozen responses of ClinicalTrials.gov.
        task: Name of the task.
        negatives: Method that finds near texts, see `by` of `hard_negatives`.
    """
    return pair_rows(_trial_texts(raw, task), NEGATIVE_CANDIDATES, negatives)


def _trial_texts(raw: Raw, task: str) -> list[tuple[str, str]]:
    frozen = frozen_source(raw, "clinical-trials")
    extent = {"studies": frozen.most("studies"), "page": frozen.most("page")}
    studies = trials.studies(frozen.ask, extent)
    return distinct((study["officialTitle"], study[TRIAL_FIELDS[task]]) for study in studies)


def pubmed_titles(raw: Raw) -> list[dict[str, str]]:
    """Return titles with the abstracts of the same articles.

    Args:
        raw: Frozen responses of PubMed.
    """
    return retrieval_rows(pubmed_texts(raw))


def pubmed_pairs(raw: Raw, negatives: str) -> list[dict[str, str | int]]:
    """Return titles with the abstract of the same article (label 1) and of a similar article (label 0).

    Args:
        raw: Frozen responses of PubMed.
        negatives: Method that finds near texts, see `by` of `hard_negatives`.
    """
    return pair_rows(pubmed_texts(raw), NEGATIVE_CANDIDATES, negatives)


def pubmed_texts(raw: Raw) -> list[tuple[str, str]]:
    """Return titles and abstracts of the articles that have both, each pair once.

    Args:
        raw: Frozen responses of PubMed.
    """
    frozen = frozen_source(raw, "pubmed")
    return distinct(entrez.pubmed_articles(frozen.ask, PUBMED_TERM, frozen.most("terms", PUBMED_TERM)))


def preprint_titles(raw: Raw, server: str) -> list[dict[str, str]]:
    """Return titles with the abstracts of the same preprints.

    Args:
        raw: Frozen responses of the server's API.
        server: `biorxiv` or `medrxiv`.
    """
    return retrieval_rows(preprint_texts(raw, server))


def preprint_texts(raw: Raw, server: str) -> list[tuple[str, str]]:
    """Return titles and abstracts of the preprints that have both, each pair once.

    Args:
        raw: Frozen responses of the server's API.
        server: `biorxiv` or `medrxiv`.

    Raises:
        BuildError: The responses are missing or malformed.
    """
    frozen = frozen_source(raw, server)
    start, end = (str(frozen.extent.get(name)) for name in ("start", "end"))
    extent = {"server": server, "start": start, "end": end, "preprints": frozen.most("preprints")}
    return distinct(preprints.preprints(frozen.ask, extent))
