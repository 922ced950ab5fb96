"""The tasks of English MedTEB whose texts an LLM writes: material for it, and rows built from its answers."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.llm import Generation, estimate_cost, generate
from medteb_mteb.curation.relatives import medquad, scraped
from medteb_mteb.curation.relatives.fetch.tables import PREPRINT_TASKS, WIKI_PAIRS
from medteb_mteb.curation.relatives.forms import MAX_TEXT_CHARACTERS, form_version, prompt_for, read_answer
from medteb_mteb.curation.relatives.rows import MAX_ROWS, SEED, distinct, pair_rows, retrieval_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.llm import LLM, Cost, Prompt
    from medteb_mteb.curation.relatives.raw import Raw

    #: Material and answer of every text, by part.
    Texts = Sequence[tuple[Mapping[str, str], Mapping[str, str]]]
    Rows = Sequence[Mapping[str, Any]]

__all__ = ["WRITTEN_TASKS", "Drafts", "WriterSettings", "WrittenTask", "estimate_drafts", "write_drafts"]

#: Number of nearest sentences from which hard negatives of the Wikipedia task are drawn.
_WIKI_NEGATIVE_CANDIDATES = 32
_PROMPTS_DIFFERENCE = "with prompts of our own and the LLM that `written` names, where the authors had GPT-4o"
_FETCH_DAY_DIFFERENCE = "of the day when it was fetched"


@dataclass(frozen=True)
class WriterSettings:
    """Settings of the LLM's requests.

    Attributes:
        llm: The LLM.
        journal: The journal of its answers, see `medteb_mteb.curation.llm.answers_path`.
        most: Maximum number of texts to show the LLM, sampled; None: as many as the task has rows for.
        retry_failed: Ask again for texts that failed in earlier runs.
        show_progress: Show a progress bar.
    """

    llm: LLM
    journal: Path
    most: int | None = None
    retry_failed: bool = False
    show_progress: bool = True

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 2:
            raise BuildError(f"At least two texts must be written about; got {self.most}.")


@dataclass(frozen=True)
class WrittenTask:
    """A task whose texts an LLM writes.

    Attributes:
        form: Form of its texts, a key of `medteb_mteb.curation.relatives.forms.WRITING_FORMS`.
        material: Returns the material for the LLM, by part, for every text of the raw files.
        rows: Builds the rows from the material and answer of every text and from the options.
        most: Maximum number of texts to show the LLM: as many as the task has rows for.
        differs: Differences between the rows and the published ones.
        options: Allowed values by option of the task; the first one is the default.
    """

    form: str
    material: Callable[[Raw], Sequence[Mapping[str, str]]]
    rows: Callable[[Texts, Mapping[str, str]], Rows]
    most: int
    differs: str
    options: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Drafts:
    """Texts that an LLM has written.

    Attributes:
        texts: Material and answer of every text with a usable answer, in the order of the raw files.
        written: Entry of `snapshot.json`: the LLM's settings, which model answered when, counts.
        made: Report of the run.
    """

    texts: Texts
    written: Mapping[str, Any]
    made: Generation[dict[str, str]]


def write_drafts(name: str, raw: Raw, settings: WriterSettings) -> Drafts:
    """Have an LLM write about the texts of a task; no answer is paid for twice.

    Args:
        name: Name of the task, a key of `WRITTEN_TASKS`.
        raw: The raw files.
        settings: Settings of the LLM's requests.

    Raises:
        BuildError: A raw file is missing or malformed, the API key is missing, or the journal is unusable.
    """
    task = WRITTEN_TASKS[name]
    material, text_count = _chosen(name, raw, settings)
    version = form_version(task.form)

    def read(prompt: Prompt, content: str) -> dict[str, str]:
        return read_answer(task.form, material[prompt.key], content)

    settings.llm.key()
    generation = generate(
        _prompts(task, material),
        settings.llm,
        settings.journal,
        version=version,
        read=read,
        retry_failed=settings.retry_failed,
        show_progress=settings.show_progress,
        name=name,
    )
    written = {
        "llm": settings.llm.settings(version),
        "answered": list(generation.answered),
        "texts": text_count,
        "shown": len(material),
        "cut": sum(
            any(len(text) > MAX_TEXT_CHARACTERS for text in one.values()) for one in material.values()
        ),
        "suspicious": sum(any(map(suspicious, one.values())) for one in material.values()),
        "failed": dict(sorted(Counter(generation.failed.values()).items())),
    }
    texts = [(material[key], answer) for key, answer in generation.answers.items()]
    if task.form == "answer":
        written["key_words_kept"] = _key_words_kept(texts)
    return Drafts(texts, written, generation)


def estimate_drafts(name: str, raw: Raw, settings: WriterSettings) -> Cost:
    """Estimate the requests and cost of `write_drafts`; nothing is sent.

    Args:
        name: Name of the task, a key of `WRITTEN_TASKS`.
        raw: The raw files.
        settings: Settings of the LLM's requests.

    Raises:
        BuildError: A raw file is missing or malformed, or the journal cannot be used.
    """
    task = WRITTEN_TASKS[name]
    material, _ = _chosen(name, raw, settings)
    return estimate_cost(
        _prompts(task, material),
        settings.llm,
        settings.journal,
        version=form_version(task.form),
        retry_failed=settings.retry_failed,
    )


def _prompts(task: WrittenTask, material: Mapping[str, Mapping[str, str]]) -> list[Prompt]:
    return [prompt_for(key, task.form, shown) for key, shown in material.items()]


def _chosen(name: str, raw: Raw, settings: WriterSettings) -> tuple[dict[str, Mapping[str, str]], int]:
    """Return the material of the prompts, by key in source order, and the number of all texts."""
    task = WRITTEN_TASKS[name]
    material = list(task.material(raw))
    if not material:
        raise BuildError(f"{name}: the raw files hold nothing to write about.")
    most = min(task.most, settings.most or task.most)
    # Ranked by digest, not drawn: a larger selection contains the smaller one, so only new answers cost.
    ranks = sorted(range(len(material)), key=lambda i: _rank(material[i]))[:most]
    return {str(i): material[i] for i in sorted(ranks)}, len(material)


def _rank(material: Mapping[str, str]) -> bytes:
    text = "\0".join((str(SEED), *material.values()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _questions(texts: Texts, options: Mapping[str, str]) -> Rows:
    del options
    return retrieval_rows(distinct((answer["question"], shown["abstract"]) for shown, answer in texts))


def _rewritten(texts: Texts, options: Mapping[str, str]) -> Rows:
    del options
    return retrieval_rows(distinct((shown["question"], answer["answer"]) for shown, answer in texts))


def _sentences(nearest: int) -> Callable[[Texts, Mapping[str, str]], Rows]:
    def rows(texts: Texts, options: Mapping[str, str]) -> Rows:
        pairs = distinct((answer["sentence1"], answer["sentence2"]) for _, answer in texts)
        return pair_rows(pairs, nearest, options["negatives"])

    return rows


def _key_words_kept(texts: Texts) -> int:
    """Return the number of answers that contain a word of their question with five letters or more."""
    words = re.compile(r"[^\W\d_]{5,}")
    return sum(
        not set(words.findall(shown["question"].lower())).isdisjoint(words.findall(answer["answer"].lower()))
        for shown, answer in texts
    )


def _abstracts(texts: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"abstract": abstract} for abstract in dict.fromkeys(abstract for _, abstract in texts)]


def _of_abstracts(read: Callable[[Raw], Sequence[tuple[str, str]]]) -> WrittenTask:
    """Return a task of questions about abstracts."""
    return WrittenTask(
        "question",
        lambda raw: _abstracts(read(raw)),
        _questions,
        MAX_ROWS,
        f"questions about abstracts, {_PROMPTS_DIFFERENCE} write them; {_FETCH_DAY_DIFFERENCE}",
        {},
    )


def _of_sentences(read: Callable[[Raw], Sequence[str]], nearest: int, what: str) -> WrittenTask:
    """Return a task of pairs of sentences about texts."""
    return WrittenTask(
        "sentences",
        lambda raw: [{"text": text} for text in read(raw)],
        _sentences(nearest),
        MAX_ROWS // 2,
        f"two sentences about {what}, {_PROMPTS_DIFFERENCE} write them; one negative per positive, of the "
        f"{nearest} second sentences nearest to the right one, by a model whose revision is not pinned or by "
        f"BM25; {_FETCH_DAY_DIFFERENCE}",
        {"negatives": ("all-MiniLM-L6-v2", "bm25")},
    )


def _pubmed(raw: Raw) -> list[str]:
    return [shown["abstract"] for shown in _abstracts(scraped.pubmed_texts(raw))]


def _preprints(server: str) -> Callable[[Raw], Sequence[tuple[str, str]]]:
    return lambda raw: scraped.preprint_texts(raw, server)


def _wiki(task: str) -> Callable[[Raw], Sequence[str]]:
    return lambda raw: scraped.wiki_sections(raw, task)


def _medquad(raw: Raw) -> list[dict[str, str]]:
    pairs, _ = medquad.read_pairs(raw)
    return [{"question": pair.question, "answer": pair.answer} for pair in pairs]


WRITTEN_TASKS: Mapping[str, WrittenTask] = {
    **{
        task: _of_sentences(
            _wiki(task),
            _WIKI_NEGATIVE_CANDIDATES,
            "sections of at most 2,000 pages, two levels of subcategories deep",
        )
        for task in WIKI_PAIRS
    },
    "pairclassification_pubmed_pair_classification": _of_sentences(
        _pubmed, scraped.NEGATIVE_CANDIDATES, "abstracts"
    ),
    "retrieval_pubmed_retrieval": _of_abstracts(scraped.pubmed_texts),
    **{task: _of_abstracts(_preprints(server)) for server, task in PREPRINT_TASKS.items()},
    "retrieval_medquad_dataset": WrittenTask(
        "answer",
        _medquad,
        _rewritten,
        MAX_ROWS,
        f"answers without the key words of the question, {_PROMPTS_DIFFERENCE} rewrite them",
        {},
    ),
}
