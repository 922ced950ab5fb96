"""MedTE's training pairs from the raw files of its ten sources, formed as in its paper or in its code."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.files import finished
from medteb_mteb.curation.files.folder import alone, read_json, write_json
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import medquad, scraped
from medteb_mteb.curation.relatives.exams import medmcqa, medqa
from medteb_mteb.curation.relatives.fetch.responses import FROZEN_FILE
from medteb_mteb.curation.relatives.fetch.tables import PREPRINT_TASKS
from medteb_mteb.curation.relatives.notes import COMPLAINT, DIAGNOSIS, HISTORY, read_notes
from medteb_mteb.curation.relatives.raw import (
    Raw,
    clean,
    in_one_line,
    parse_csv,
    parse_json,
    read_text,
)
from medteb_mteb.curation.relatives.streams import parse_jsonl
from medteb_mteb.editions import sha256_of
from medteb_mteb.english.snapshot import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["PAIR_FORMS", "PAIR_SOURCES", "build_pairs", "first_sentence"]

logger = logging.getLogger(__name__)

#: Pairs as described in the paper, or as built by the authors' code.
PAIR_FORMS = ("paper", "code")
MANIFEST = "pairs.json"


def first_sentence(text: str) -> str:
    """Return the first sentence of a text: up to an end mark before a capital, a digit or "("."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z0-9(])", in_one_line(text), maxsplit=1)[0]


def _titled(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield title and the first sentence of the abstract (paper) or the whole abstract (code)."""
    for title, abstract in _articles(raw):
        abstract = in_one_line(abstract)
        yield title, first_sentence(abstract) if form == "paper" else abstract


def _articles(raw: Raw) -> Iterator[tuple[str, str]]:
    """Yield titles and abstracts from JSON lines and from responses of `medteb build fetch`.

    Raises:
        BuildError: There are neither, or a file is malformed.
    """
    fetched = raw.find(FROZEN_FILE)
    for path in fetched:
        source, folder = parse_json(path, dict).get("source"), Raw(path.parent)
        if source == "pubmed":
            yield from scraped.pubmed_texts(folder)
        elif source in PREPRINT_TASKS:
            yield from scraped.preprint_texts(folder, source)
        else:
            raise BuildError(f"{path} is of {repr(source)[:40]}, which has no articles with abstracts.")
    needed = "JSON lines with title and abstract, or the folder of a `medteb build fetch`"
    for path in raw.find("*.jsonl*", needed="" if fetched else needed):
        for row in parse_jsonl(path):
            yield in_one_line(_text(row, "title")), _text(row, "abstract", "content")


def _text(row: dict[str, Any], *names: str) -> str:
    text = next((row[name] for name in names if isinstance(row.get(name), str)), "")
    return str(text)


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
    pages, tables = raw.find("*.json*"), raw.find("*.csv")
    if not pages and not tables:
        raise BuildError(f"{raw.folder} has no *.json pages of ClinicalTrials.gov's API v2, and no *.csv.")
    for path in pages:
        for study in parse_json(path, dict).get("studies") or ():
            section = study.get("protocolSection", {}) if isinstance(study, dict) else {}
            try:
                title = section["identificationModule"]["officialTitle"]
                yield in_one_line(title), clean(section["descriptionModule"]["detailedDescription"])
            except (KeyError, TypeError):
                yield "", ""  # many studies have no detailed description
    for path in tables:
        for row in parse_csv(read_text(path), str(path), ("title", "description")):
            yield in_one_line(row["title"]), clean(row["description"])


def _medmcqa(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield question and explanation."""
    del form
    name = "train.json" if raw.has("train.json") else "dev.json"
    yield from ((row["question"], row["explanation"]) for row in medmcqa(raw, name))


def _medqa(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield question and text of the right option: the published files lack the paper's explanations."""
    del form
    name = "*train.jsonl" if raw.has("*train.jsonl") else "*test.jsonl"
    yield from ((row["question"], row["options"][row["answer"]]) for row in medqa(raw, name))


def _medquad(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield question and answer."""
    del form
    yield from ((pair.question, pair.answer) for pair in medquad.read_pairs(raw)[0])


def _beir(raw: Raw, form: str) -> Iterator[tuple[str, str]]:
    """Yield query and relevant passage (paper), or title and text of every document (code)."""
    path = raw.one("corpus.jsonl*", "a set in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/*.tsv")
    corpus = {
        str(row.get("_id")): (in_one_line(_text(row, "title")), clean(_text(row, "text")))
        for row in parse_jsonl(path)
    }
    if form == "code":
        yield from corpus.values()
        return
    path = raw.one("queries.jsonl*", "the queries of a set in BEIR's layout")
    queries = {str(row.get("_id")): in_one_line(_text(row, "text")) for row in parse_jsonl(path)}
    for path in raw.find("*.tsv", needed="the qrels of a set in BEIR's layout"):
        table = parse_csv(read_text(path), str(path), ("query-id", "corpus-id", "score"), delimiter="\t")
        for row in table:
            if not row["score"].lstrip("-").isdigit():
                raise BuildError(f"{path}: score {row['score']!r} is not a whole number.")
            if int(row["score"]) > 0:
                title, text = corpus.get(row["corpus-id"], ("", ""))
                yield queries.get(row["query-id"], ""), f"{title}\n{text}".strip()


@dataclass(frozen=True)
class PairSource:
    """A source of pairs.

    Attributes:
        read: Yields the pairs of its raw files in a form; pairs with an empty text are left out later.
        published: Number of its pairs in the paper.
    """

    read: Callable[[Raw, str], Iterator[tuple[str, str]]]
    published: int


#: Sources by the names of their files in the recipe `medte`.
PAIR_SOURCES: dict[str, PairSource] = {
    "pubmed": PairSource(_titled, 572_300),
    "biorxiv-medrxiv": PairSource(_titled, 231_400),
    "mimic-iv": PairSource(_mimic, 311_400),
    "clinical-trials": PairSource(_trials, 378_800),
    "medmcqa": PairSource(_medmcqa, 151_000),
    "medqa": PairSource(_medqa, 5_300),
    "medquad": PairSource(_medquad, 8_500),
    "trec-covid": PairSource(_beir, 129_200),
    "nfcorpus": PairSource(_beir, 3_600),
    "curev1": PairSource(_beir, 242_300),
}


def build_pairs(
    source: Path | str,
    out: Path | str,
    *,
    form: str = "paper",
    against: Path | str | None = None,
    say: Callable[[str], None] = logger.info,
) -> dict[str, dict[str, Any]]:
    """Write the pairs of every source that has a folder, in the format of the recipe `medte`.

    A source already written from the same raw files in the same form is kept, so the same call resumes an
    interrupted run.

    Args:
        source: Folder with a folder of raw files per source, named as in `PAIR_SOURCES`.
        out: Folder of the pairs: `<source>.jsonl` with `query` and `positive`.
        form: One of `PAIR_FORMS`.
        against: Root of editions with a snapshot of English MedTEB. Pairs whose second text is a cell of the
            snapshot are dropped, as in the authors' code.
        say: Called with one line per source.

    Returns:
        By source: number of pairs, number left out by reason, number in the paper, and digests.

    Raises:
        BuildError: There is no source, a raw file is malformed, a written file was changed, or a source gives
            no pairs; in the last case the other sources are written.
    """
    if form not in PAIR_FORMS:
        raise BuildError(f"form is one of {', '.join(PAIR_FORMS)}; got {form!r}.")
    source, out = Path(source).expanduser(), Path(out).expanduser()
    present = [name for name in PAIR_SOURCES if (source / name).is_dir()]
    if not present:
        raise BuildError(f"{source} has none of the folders {', '.join(PAIR_SOURCES)}.")
    benchmark_texts = _cells(Path(against).expanduser()) if against is not None else frozenset()
    with alone(out):
        record = read_json(out / MANIFEST) if (out / MANIFEST).is_file() else {}
        empty: dict[str, dict[str, int]] = {}
        for name in present:
            raw = Raw(source / name)
            before = record.get(name)
            if before is not None and _unchanged(out / f"{name}.jsonl", before, raw, form, benchmark_texts):
                say(f"{name}: {before['pairs']:,} pairs (written before)")
                continue
            written = _write(name, raw, out, form, benchmark_texts)
            if written["pairs"]:
                record[name] = written
            else:
                record.pop(name, None)
                empty[name] = written["left_out"]
            write_json(out / MANIFEST, record)
            say(f"{name}: {written['pairs']:,} pairs, {written['published']:,} in the paper")
    if empty:
        reasons = "; ".join(f"{name} (left out: {left_out or 'nothing'})" for name, left_out in empty.items())
        raise BuildError(
            f"No pairs were built from {reasons}. The pairs of the other sources are written. Give these "
            "sources other files, or remove their folders."
        )
    return {name: record[name] for name in present}


def _write(name: str, raw: Raw, out: Path, form: str, benchmark_texts: frozenset[str]) -> dict[str, Any]:
    left_out: Counter[str] = Counter()
    seen: set[int] = set()
    pairs = 0
    path = out / f"{name}.jsonl"
    with finished(path) as part, part.open("w", encoding="utf-8") as stream:
        for query, positive in PAIR_SOURCES[name].read(raw, form):
            if not query or not positive:
                left_out["pairs with an empty text"] += 1
            elif positive in benchmark_texts:
                left_out["pairs whose second text is in the benchmark"] += 1
            elif hash((query, positive)) in seen:
                left_out["repeated pairs"] += 1
            else:
                seen.add(hash((query, positive)))
                pairs += 1
                stream.write(json.dumps({"query": query, "positive": positive}, ensure_ascii=False) + "\n")
    digest = sha256_of(path)
    if not pairs:
        path.unlink()
    return {
        "pairs": pairs,
        "published": PAIR_SOURCES[name].published,
        "form": form,
        "tested": len(benchmark_texts),
        "tested_sha256": _digest(benchmark_texts),
        "files_sha256": _digest(_files(raw)),
        "left_out": dict(left_out),
        "sha256": digest,
        "made_from": dict(sorted(raw.used.items())),
    }


def _unchanged(
    path: Path, before: dict[str, Any], raw: Raw, form: str, benchmark_texts: frozenset[str]
) -> bool:
    """Return True if a source was written from the same raw files, with none added, in the same form.

    Raises:
        BuildError: The written file was changed.
    """
    same = (before["form"], before.get("tested_sha256"), before.get("files_sha256")) == (
        form,
        _digest(benchmark_texts),
        _digest(_files(raw)),
    )
    for name, digest in before["made_from"].items():
        same = same and _digest_now(raw, name) == digest
    if same and (not path.is_file() or sha256_of(path) != before["sha256"]):
        raise BuildError(f"{path} is not what was written. Delete it and {path.parent / MANIFEST}.")
    return bool(same)


def _digest_now(raw: Raw, name: str) -> str:
    """Return the digest of an entry of `Raw.used`: of a file, or of a checkout's XML files together."""
    if (raw.folder / name).is_file():
        return sha256_of(raw.folder / name)
    checkout = Raw(raw.folder)
    checkout.as_archive(name)
    return checkout.used[name]


def _files(raw: Raw) -> list[str]:
    """Return the paths of all files of a folder except hidden ones."""
    paths = (path.relative_to(raw.folder) for path in raw.folder.rglob("*") if path.is_file())
    return [path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)]


def _digest(texts: Iterable[str]) -> str:
    """Return a digest (sha256, hex) of texts that is independent of their order."""
    digest = hashlib.sha256()
    for text in sorted(texts):
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def _cells(root: Path) -> frozenset[str]:
    """Return the texts of all cells of a snapshot, normalised like the texts of pairs."""
    folder = root / FOLDER
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise BuildError(f"{folder} holds no files of English MedTEB to compare with.")
    cells: set[str] = set()
    for path in files:
        for row in parse_csv(read_text(path), str(path), ()):
            for cell in row.values():
                cells |= {in_one_line(cell), clean(cell)}
    return frozenset(cells - {""})
