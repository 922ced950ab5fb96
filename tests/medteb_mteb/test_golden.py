"""Published numbers that can be checked without the Hub: each row of the page is computed here."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from mar_st.planning.backbones import count, source_shape
from medteb_mteb.curation.nano.sample import select_queries
from medteb_mteb.curation.relatives import exams, medquad
from medteb_mteb.curation.relatives.medte import PAIR_SOURCES
from medteb_mteb.curation.relatives.raw import Raw
from medteb_mteb.curation.texts.redundancy import correlation, read_scores
from medteb_mteb.english.table import averages, english_tasks, published_results
from medteb_mteb.nano.table import published_sets
from medteb_mteb.tasks.cmirb import cmirb_scores

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks" / "golden.md"
SOURCES = ROOT.parent / "shared" / "data" / "sources"


def redundancy():
    table = read_scores(Path(__file__).with_name("mar_table_9.csv"))
    return correlation(table, ["CMedQAv1", "CMedQAv2"], ["Retrieval", "Reranking", "STS"])


def parameters(name: str) -> str:
    return millions(count(source_shape(name)).total)


def with_head() -> str:
    """Parameters of Qwen3-8B and of its language-model head, a matrix of the size of the token embeddings."""
    counts = count(source_shape("Qwen/Qwen3-8B"))
    return millions(counts.total + counts.embeddings)


def three_layers() -> str:
    shape = source_shape("Qwen/Qwen3-4B")
    return millions(count(shape.with_layers(4)).total - count(shape.with_layers(1)).total)


def millions(number: int) -> str:
    return f"{number / 1e6:.2f}M"


def number_of(text: str) -> float:
    """Return the number in `305M`, `4.02B` or `1600`."""
    return float(text.rstrip("MB")) * {"M": 1e6, "B": 1e9}.get(text[-1], 1)


def raw(*parts: str) -> Path:
    path = SOURCES.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no raw files at {path}")
    return path


def first_queries(split: str) -> tuple[dict[str, str], list[tuple[str, str, float]]]:
    """Return the 200 queries that a split takes from its source, and the source's judgements."""
    folder = raw("multi-cpr", split)
    queries = [line.split("\t", 1) for line in (folder / "dev.query.txt").read_text("utf-8").splitlines()]
    rows = [line.split() for line in (folder / "qrels.dev.tsv").read_text("utf-8").splitlines()]
    judged = [(query, document, float(score)) for query, _, document, score in rows]
    return select_queries(((key, text.strip()) for key, text in queries), judged), judged


def mean_length(split: str) -> str:
    selected, _ = first_queries(split)
    return f"{sum(map(len, selected.values())) / len(selected):.10g}"


def examples() -> str:
    """Count the example pairs on the cards of three splits that are among their first queries' positives."""
    pairs, present = 0, 0
    for name in ("medical", "ecom", "video"):
        selected, judged = first_queries(name)
        positives = {
            (query, document) for query, document, score in judged if query in selected and score > 0
        }
        shown = published_sets()["NanoCMTEB"].splits[name].examples
        pairs, present = pairs + len(shown), present + len(set(shown) & positives)
    return f"{present} of {pairs}"


def bioasq() -> list[list[str]]:
    path = raw("anserini", "qrels.beir-v1.0.0-bioasq.test.txt")
    return [line.split() for line in path.read_text("utf-8").splitlines()]


def topics() -> str:
    with gzip.open(raw("anserini", "topics.beir-v1.0.0-bioasq.test.tsv.gz"), "rt", encoding="utf-8") as file:
        return str(sum(1 for _ in file))


def english_agreeing() -> str:
    printed = published_results().values()
    close = [abs((48 * one.by_type + 3 * one.types["CLS"]) / 51 - one.overall) < 0.001 for one in printed]
    return f"{sum(close)} of {len(close)}"


def english_medte() -> str:
    printed = published_results()["MedTE cl15 step 8000"]
    return f"{(48 * printed.by_type + 3 * printed.types['CLS']) / 51:.3f}"


def english_sources_agreeing() -> str:
    """Count the models whose overall average follows from their means by source, which have two decimals."""
    printed = published_results().values()
    tasks = english_tasks().values()
    computed = [averages({task.name: one.sources[task.source] for task in tasks}).overall for one in printed]
    close = [abs(ours - one.overall) < 0.004 for ours, one in zip(computed, printed, strict=True)]
    return f"{sum(close)} of {len(close)}"


def bmretriever_averages() -> str:
    """Count the averages of four and of five sets that are means of the scores printed beside them."""
    with Path(__file__).with_name("bmretriever_scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    sets = list(rows[0])[1:6]
    close = [
        abs(sum(float(row[name]) for name in sets[:number]) / number - float(row[f"average of {number}"]))
        < 6e-4
        for row in rows
        for number in (4, 5)
    ]
    return f"{sum(close)} of {len(close)}"


def nano(figure: str) -> str:
    return str(sum(getattr(split, figure) for split in published_sets()["NanoCMTEB"].splits.values()))


def medical_safeguards() -> str:
    split = published_sets()["NanoCMTEB"].splits["medical"]
    recall = split.lists["reranking_hybrid"].recall_micro_at_100
    return str(round(split.queries * (1 - recall)))


def cmedqa_recall() -> str:
    split = published_sets()["NanoCMTEB"].splits["cmedqa"]
    return f"{121 / split.positives:.4f}"


def whole_misses() -> str:
    """Count the splits whose hybrid recall misses a whole number of positives, not fewer than safeguards."""
    splits = [split for one in published_sets().values() for split in one.splits.values()]
    whole = 0
    for split in splits:
        missed = split.positives * (1 - split.lists["reranking_hybrid"].recall_micro_at_100)
        whole += abs(missed - round(missed)) < 1e-6 and round(missed) >= split.safeguards
    return f"{whole} of {len(splits)}"


def cmirb_means() -> str:
    close = [abs(sum(row.ndcg_at_10) / 10 - row.average) < 0.0051 for row in cmirb_scores()]
    return f"{sum(close)} of {len(close)}"


def lines(*parts: str) -> str:
    return str(sum(1 for line in raw(*parts).read_text("utf-8").splitlines() if line.strip()))


def biosses() -> str:
    return str(int(lines("biosses", "all.tsv")) - 1)  # a header


ROWS = {
    "MAR, Table 9: Spearman of CMedQA and the new tasks": lambda: f"{redundancy().spearman:.3f}",
    "MAR, Table 9: its p": lambda: f"{redundancy().p:.3f}",
    "MAR's query encoder, gte-multilingual-mlm-base: parameters": lambda: parameters(
        "Alibaba-NLP/gte-multilingual-mlm-base"
    ),
    "Qwen3-Embedding-0.6B: parameters": lambda: parameters("Qwen/Qwen3-0.6B"),
    "MAR-0.3B-4B's document encoder, Qwen3-4B: parameters": lambda: parameters("Qwen/Qwen3-4B"),
    "MAR-0.3B-8B's document encoder, Qwen3-8B with its language-model head: parameters": with_head,
    "Qwen3-8B without this head: parameters": lambda: parameters("Qwen/Qwen3-8B"),
    "KALE's query encoder, three layers of Qwen3-4B without embeddings: parameters": three_layers,
    "gte-base (MedTE): parameters": lambda: parameters("thenlper/gte-base"),
    "English MedTEB, Table IV: averages that follow from the means by type": english_agreeing,
    "English MedTEB, Table IV: overall average of MedTE": english_medte,
    "English MedTEB, Table V: averages that follow from the means by source": english_sources_agreeing,
    "MedTE: pairs of its ten sources": lambda: str(sum(one.published for one in PAIR_SOURCES.values())),
    "BMRetriever: averages of four and five sets that are the means of their scores": bmretriever_averages,
    "CMIRB: means that are the mean of their ten scores": cmirb_means,
    "NanoCMTEB: queries": lambda: nano("queries"),
    "NanoCMTEB: documents": lambda: nano("documents"),
    "NanoCMTEB: positives": lambda: nano("positives"),
    "NanoCMTEB medical: safeguards, 200 x (1 - .825)": medical_safeguards,
    "NanoCMTEB cmedqa: micro recall@100 of BM25 with 121 of its positives": cmedqa_recall,
    "NanoCMTEB, NanoMedical: splits whose hybrid recall misses whole positives": whole_misses,
    "NanoCMTEB medical, ecom, video: example pairs among the first queries' positives": examples,
    "NanoCMTEB medical: mean query length": lambda: mean_length("medical"),
    "NanoCMTEB ecom: mean query length": lambda: mean_length("ecom"),
    "NanoCMTEB video: mean query length": lambda: mean_length("video"),
    "BioASQ (BEIR): topics": topics,
    "BioASQ (BEIR): judged pairs": lambda: str(len(bioasq())),
    "BioASQ (BEIR): relevant PMIDs": lambda: str(len({row[2] for row in bioasq()})),
    "MedQuAD: graded LiveQA answers": lambda: str(len(medquad.read_grades(Raw(raw("medquad"))))),
    "MedMCQA: questions of the development split": lambda: lines("mirage", "medmcqa", "dev.json"),
    "MedQA-US: test questions": lambda: str(sum(1 for _ in exams.medqa(Raw(raw("mirage", "medqa"))))),
    "PubMedQA: test questions": lambda: str(
        len(json.loads(raw("mirage", "pubmedqa", "test_set.json").read_text("utf-8")))
    ),
    "BIOSSES: pairs": biosses,
}


def page() -> dict[str, list[str]]:
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    return {row[0].removesuffix(" *"): row[1:] for row in rows if len(row) == 4}


def test_the_page_has_these_rows_and_no_others():
    assert list(page())[2:] == list(ROWS)


@pytest.mark.parametrize("figure", ROWS)
def test_the_number_is_the_published_one(figure):
    published, here, agrees = page()[figure]
    assert ROWS[figure]() == here
    assert (agrees == "yes") == (published == here)
    if agrees == "rounded":
        digits = published.rstrip("MB").partition(".")[2]
        unit = {"M": 1e6, "B": 1e9}[published[-1]] / 10 ** len(digits)
        assert abs(number_of(here) - number_of(published)) <= unit / 2
    else:
        assert agrees == "yes" or agrees.startswith("no: ")
