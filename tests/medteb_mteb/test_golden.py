"""Published numbers that can be checked without the Hub: each row of the page is computed here."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mar_st.planning.backbones import count, source_shape
from medteb_mteb.curation.nano.sample import select_queries
from medteb_mteb.curation.texts.redundancy import correlation, read_scores
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


def mean_length(split: str) -> str:
    folder = raw("multi-cpr", split)
    queries = [line.split("\t", 1) for line in (folder / "dev.query.txt").read_text("utf-8").splitlines()]
    rows = [line.split() for line in (folder / "qrels.dev.tsv").read_text("utf-8").splitlines()]
    selected = select_queries(
        ((key, text.strip()) for key, text in queries), [(q, d, float(score)) for q, _, d, score in rows]
    )
    return f"{sum(map(len, selected.values())) / len(selected):.10g}"


def bioasq() -> list[list[str]]:
    path = raw("anserini", "qrels.beir-v1.0.0-bioasq.test.txt")
    return [line.split() for line in path.read_text("utf-8").splitlines()]


def topics() -> str:
    with gzip.open(raw("anserini", "topics.beir-v1.0.0-bioasq.test.tsv.gz"), "rt", encoding="utf-8") as file:
        return str(sum(1 for _ in file))


def english_agreeing() -> str:
    table = pytest.importorskip("medteb_mteb.english.table")
    printed = table.published_results().values()
    close = [abs((48 * one.by_type + 3 * one.types["CLS"]) / 51 - one.overall) < 0.001 for one in printed]
    return f"{sum(close)} of {len(close)}"


def english_medte() -> str:
    table = pytest.importorskip("medteb_mteb.english.table")
    printed = table.published_results()["MedTE cl15 step 8000"]
    return f"{(48 * printed.by_type + 3 * printed.types['CLS']) / 51:.3f}"


def nano(figure: str) -> str:
    return str(sum(getattr(split, figure) for split in published_sets()["NanoCMTEB"].splits.values()))


def medical_safeguards() -> str:
    split = published_sets()["NanoCMTEB"].splits["medical"]
    recall = split.lists["reranking_hybrid"].recall_micro_at_100
    return str(round(split.queries * (1 - recall)))


def cmirb_means() -> str:
    close = [abs(sum(row.ndcg_at_10) / 10 - row.average) < 0.0051 for row in cmirb_scores()]
    return f"{sum(close)} of {len(close)}"


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
    "CMIRB: means that are the mean of their ten scores": cmirb_means,
    "NanoCMTEB: queries": lambda: nano("queries"),
    "NanoCMTEB: documents": lambda: nano("documents"),
    "NanoCMTEB: positives": lambda: nano("positives"),
    "NanoCMTEB medical: safeguards, 200 x (1 - .825)": medical_safeguards,
    "NanoCMTEB medical: mean query length": lambda: mean_length("medical"),
    "NanoCMTEB ecom: mean query length": lambda: mean_length("ecom"),
    "NanoCMTEB video: mean query length": lambda: mean_length("video"),
    "BioASQ (BEIR): topics": topics,
    "BioASQ (BEIR): judged pairs": lambda: str(len(bioasq())),
    "BioASQ (BEIR): relevant PMIDs": lambda: str(len({row[2] for row in bioasq()})),
}


def page() -> dict[str, list[str]]:
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    return {row[0]: row[1:] for row in rows if len(row) == 4}


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
