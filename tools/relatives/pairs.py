"""MedTE's training pairs from the raw files of its ten sources, formed as in its paper or in its code."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import finished, read_json, write_json
from medteb_mteb.tasks.english import FOLDER
from tools.relatives.english import medmcqa, medqa, preprint_texts, pubmed_texts
from tools.relatives.notes import COMPLAINT, DIAGNOSIS, HISTORY, read_notes
from tools.relatives.raw import Raw, clean, in_one_line
from tools.relatives.sets import medquad_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def first_sentence(text: str) -> str:
    """Return the first sentence of a text: up to an end mark before a capital, a digit or "("."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z0-9(])", in_one_line(text), maxsplit=1)[0]


def two_passages(source: Path, out: Path) -> dict[str, int]:
    """Write BMRetriever's unlabelled pairs: a title and its text, or two disjoint passages of one text.

    A text without a title is cut at the end of a sentence, drawn with a fixed seed, and either part may be
    the query. The paper (arXiv 2404.18443) says only that the passages are random and disjoint.

    Args:
        source: Rows with `text` and maybe `title`.
        out: JSON lines with `query` and `positive`.

    Returns:
        Numbers of `titled` texts, of `passages` pairs, and of texts of one sentence, which are `left_out`.
    """
    draw, counts = random.Random(42), Counter[str]()
    with finished(out) as part, part.open("w", encoding="utf-8") as lines:
        for _, row in read_rows(source):
            title, text = in_one_line(row.get("title")), in_one_line(row.get("text"))
            ends = [found.end() for found in re.finditer(r"[.!?](?= )|[。！？](?=.)", text)]
            if title and text:
                kind, pair = "titled", [title, text]
            elif ends:
                cut = draw.choice(ends)
                kind, pair = "passages", [text[:cut], text[cut:].strip()]
                draw.shuffle(pair)
            else:
                kind, pair = "left_out", []
            counts[kind] += 1
            if pair:
                row = {"query": pair[0], "positive": pair[1]}
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    return dict(counts)


def _titled(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield title and the first sentence of the abstract (paper) or the whole abstract (code)."""
    for title, abstract in _articles(raw):
        yield title, first_sentence(abstract) if form == "paper" else in_one_line(abstract)


def _articles(raw: Raw) -> Iterator[tuple[str, str]]:
    """Yield titles and abstracts from responses of `fetch` and from JSON lines."""
    fetched = raw.find("fetched.json")
    for path in fetched:
        source, folder = read_json(path)["source"], Raw(path.parent)
        yield from pubmed_texts(folder) if source == "pubmed" else preprint_texts(folder, source)
    for path in raw.find("*.jsonl*", "" if fetched else "JSON lines with title and abstract, or a fetch"):
        for _, row in read_rows(path):
            yield in_one_line(row.get("title")), str(row.get("abstract") or row.get("content") or "")


def _mimic(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield history and chief complaint (paper); diagnosis, and complaint with history (code)."""
    for note in read_notes(raw):
        if form == "paper":
            yield note.fields.get(HISTORY, ""), note.fields.get(COMPLAINT, "")
        else:
            yield note.fields.get(DIAGNOSIS, ""), note.presented


def _trials(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield official title and detailed description, from pages of the API or Trial2Vec's table."""
    del form
    pages, tables = raw.find("*.json"), raw.find("*.csv")
    if not pages and not tables:
        raise MarError(f"{raw.folder} has no *.json pages of ClinicalTrials.gov's API v2, and no *.csv.")
    for study in (study for path in pages for study in read_json(path).get("studies", ())):
        section = study.get("protocolSection", {})
        title = section.get("identificationModule", {}).get("officialTitle")
        yield in_one_line(title), clean(section.get("descriptionModule", {}).get("detailedDescription"))
    for _, row in (row for path in tables for row in read_rows(path)):
        yield in_one_line(str(row["title"])), clean(str(row["description"]))


def _medmcqa(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield question and explanation."""
    del form
    name = "train.json" if any(raw.folder.rglob("train.json")) else "dev.json"
    yield from ((row["question"], row["explanation"]) for row in medmcqa(raw, name))


def _medqa(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield question and text of the right option: the published files lack the paper's explanations."""
    del form
    name = "*train.jsonl" if any(raw.folder.rglob("*train.jsonl")) else "*test.jsonl"
    yield from ((row["question"], row["options"][row["answer"]]) for row in medqa(raw, name))


def _medquad(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield question and answer."""
    del form
    yield from ((pair.question, pair.answer) for pair in medquad_pairs(raw)[0])


def _beir(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield query and relevant passage (paper), or title and text of every document (code)."""
    needed = "a set in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/*.tsv"
    corpus = {
        str(row["_id"]): (in_one_line(row.get("title")), clean(row.get("text")))
        for _, row in read_rows(raw.one("corpus.jsonl*", needed))
    }
    if form == "code":
        yield from corpus.values()
        return
    rows = read_rows(raw.one("queries.jsonl*", needed))
    queries = {str(row["_id"]): in_one_line(row.get("text")) for _, row in rows}
    for _, row in (row for path in raw.find("*.tsv", needed) for row in read_rows(path)):
        if int(row["score"]) > 0:
            title, text = corpus.get(str(row["corpus-id"]), ("", ""))
            yield queries.get(str(row["query-id"]), ""), f"{title}\n{text}".strip()


class Source(NamedTuple):
    """Reader of a source's pairs, and their number in the paper."""

    read: Callable[[Raw, str], Iterator[tuple[str, str]]]
    published: int


#: By the names of the files in the recipe `medte`.
SOURCES = {
    "pubmed": Source(_titled, 572_300),
    "biorxiv-medrxiv": Source(_titled, 231_400),
    "mimic-iv": Source(_mimic, 311_400),
    "clinical-trials": Source(_trials, 378_800),
    "medmcqa": Source(_medmcqa, 151_000),
    "medqa": Source(_medqa, 5_300),
    "medquad": Source(_medquad, 8_500),
    "trec-covid": Source(_beir, 129_200),
    "nfcorpus": Source(_beir, 3_600),
    "curev1": Source(_beir, 242_300),
}


def build_pairs(source: Path, out: Path, form: str = "paper", against: Path | None = None) -> dict[str, Any]:
    """Write the pairs of every source that has a folder, as `<source>.jsonl` with `query` and `positive`.

    Args:
        source: Folder with a folder of raw files per source, named as in `SOURCES`.
        out: Folder of the pairs.
        form: `paper` or `code`: pairs as described in the paper, or as built by the authors' code.
        against: Root of editions with a snapshot of English MedTEB. Pairs whose second text is a cell of the
            snapshot are dropped, as in the authors' code.
    """
    present = [name for name in SOURCES if (source / name).is_dir()]
    if not present:
        raise MarError(f"{source} has none of the folders {', '.join(SOURCES)}.")
    tested = {
        text
        for path in sorted((against / FOLDER).glob("*.csv") if against is not None else ())
        for _, row in read_rows(path)
        for cell in map(str, row.values())
        for text in (in_one_line(cell), clean(cell))
    } - {""}
    record: dict[str, Any] = {}
    out.mkdir(parents=True, exist_ok=True)
    for name in present:
        raw, left_out = Raw(source / name), Counter[str]()
        seen: set[int] = set()
        with finished(out / f"{name}.jsonl") as part, part.open("w", encoding="utf-8") as stream:
            for query, positive in SOURCES[name].read(raw, form):
                pair = hash((query, positive))
                if not query or not positive:
                    left_out["pairs with an empty text"] += 1
                elif positive in tested:
                    left_out["pairs whose second text is in the benchmark"] += 1
                elif pair in seen:
                    left_out["repeated pairs"] += 1
                else:
                    seen.add(pair)
                    row = {"query": query, "positive": positive}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        counts = {"pairs": len(seen), "published": SOURCES[name].published, "left_out": dict(left_out)}
        record[name] = {
            **counts,
            "form": form,
            "tested": len(tested),
            "made_from": dict(sorted(raw.used.items())),
        }
    write_json(out / "pairs.json", record)
    return record
