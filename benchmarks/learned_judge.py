"""Agreement of a learned judge with labels it has not seen: weighted kappa and AUC, with bootstrap intervals.

    python benchmarks/learned_judge.py data --open OPEN --out /tmp/learned
    mar cross-encoder /tmp/learned/train.jsonl --base MODEL \
        --out /tmp/learned/judge --layers 4 --max-length 96
    python benchmarks/learned_judge.py report /tmp/learned

`data` writes graded pairs of the packaged editions and of openly licensed questions and answers. A fifth of
the packaged queries is held out, those that share a relevant document together, and nothing of the open test
sets is trained on. The open pairs have no grades: the answer to a question has the best one, what BM25 finds
for it otherwise the lowest, unlooked at. Of each query, six pairs of the lowest grade are kept.

`report` grades the held-out pairs. Intervals are percentiles of 2,000 bootstrap samples of queries.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LABELS = {"S": 4, "A": 3, "B": 2, "C": 1, "D": 0}
PACKAGED_TASKS = ("MedTEBRetrieval", "MedTEBReranking")
#: Pairs of the lowest grade to train on, per query.
LOWEST = 6

OPEN_SETS = ("huatuo-retrieval", "generated-retrieval")


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def texts(path: Path) -> dict[str, str]:
    return {row["_id"]: "\n".join(filter(None, [row.get("title"), row["text"]])) for row in rows(path)}


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def write(path: Path, pairs: list[dict]) -> None:
    path.write_text("".join(json.dumps(p, ensure_ascii=False) + "\n" for p in pairs), encoding="utf-8")


def groups(queries: dict[str, str], relevant: dict[str, set[str]]) -> dict[str, str]:
    """Query id to the first id of those it shares a relevant document with."""
    parent = {name: name for name in queries}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    first: dict[str, str] = {}
    for name in queries:
        for document in relevant.get(name, ()):
            other = first.setdefault(document, name)
            parent[root(name)] = root(other)
    return {name: root(name) for name in queries}


def packaged() -> tuple[list[dict], list[dict]]:
    """Graded pairs to train on, and of a fifth of the groups to report on."""
    train, test = [], []
    queries, documents, graded = {}, {}, []
    for task in PACKAGED_TASKS:
        folder = ROOT / "tasks" / task
        queries |= {f"{task}/{name}": text for name, text in texts(folder / "queries.jsonl").items()}
        documents |= {f"{task}/{name}": text for name, text in texts(folder / "corpus.jsonl").items()}
        graded += [(f"{task}/{q}", f"{task}/{d}", grade) for q, d, grade in table(folder / "grades.tsv")]
    # The same text of two editions is one document.
    relevant: dict[str, set[str]] = {}
    for query, document, grade in graded:
        if grade in "SA":
            relevant.setdefault(query, set()).add(documents[document])
    of = groups(queries, relevant)
    names = sorted(set(of.values()))
    random.Random(7).shuffle(names)
    held = set(names[: len(names) // 5])
    for query, document, grade in graded:
        pair = {"query": queries[query], "document": documents[document], "label": LABELS[grade]}
        (test if of[query] in held else train).append(pair)
    return train, test


def some_queries(pairs: list[dict], count: int) -> list[dict]:
    """All pairs of so many queries."""
    queries = sorted({pair["query"] for pair in pairs})
    kept = set(random.Random(8).sample(queries, min(count, len(queries))))
    return [pair for pair in pairs if pair["query"] in kept]


def best_others(questions: list[str], answers: list[str], own: list[int], depth: int) -> list[list[int]]:
    """Numbers of the answers that BM25 ranks best for each question, without its own."""
    from mar_st.mining.retrievers import BM25

    retriever = BM25()
    retriever.prepare(questions, answers)
    results = retriever.search(range(len(questions)), depth + 1)
    return [
        [int(one) for one in row if one >= 0 and one != mine and answers[one] != answers[mine]][:depth]
        for row, mine in zip(results, own, strict=True)
    ]


def open_pairs(folder: Path, count: int) -> list[dict]:
    """Questions with their own answer, one of BM25's and one at random."""
    draw = random.Random(9)
    drawn = draw.sample(rows(folder / "train" / "pairs.jsonl"), 4 * count)
    answers = [row["positive"] for row in drawn]
    questions = drawn[:count]
    ranks = best_others([row["query"] for row in questions], answers, list(range(count)), 20)
    pairs = []
    for number, row in enumerate(questions):
        others = [draw.choice(ranks[number]), draw.choice([i for i in range(len(answers)) if i != number])]
        pairs.append({"query": row["query"], "document": row["positive"], "label": 4})
        pairs += [{"query": row["query"], "document": answers[i], "label": 0} for i in others]
    return pairs


def open_test(folder: Path, count: int) -> list[dict]:
    """Questions of a test with their answer and the nine others that BM25 ranks best."""
    queries, documents = texts(folder / "queries.jsonl"), texts(folder / "corpus.jsonl")
    names, answers = list(documents), list(documents.values())
    qrels = [(q, d) for q, d, score in table(folder / "qrels" / "test.tsv") if int(score) > 0]
    chosen = random.Random(10).sample(qrels, count)
    own = [names.index(document) for _, document in chosen]
    ranks = best_others([queries[query] for query, _ in chosen], answers, own, 9)
    pairs = []
    for (query, _), mine, others in zip(chosen, own, ranks, strict=True):
        pairs.append({"query": queries[query], "document": answers[mine], "label": 4})
        pairs += [{"query": queries[query], "document": answers[i], "label": 0} for i in others]
    return pairs


def make(options: argparse.Namespace) -> None:
    """Write the pairs to train on, and those to report on."""
    options.out.mkdir(parents=True, exist_ok=True)
    train, test = packaged()
    train = some_queries(train, options.queries) + open_pairs(options.open, options.pairs)
    random.Random(11).shuffle(train)
    seen: Counter[str] = Counter()
    kept = []
    for pair in train:
        seen[pair["query"]] += pair["label"] == 0
        if pair["label"] or seen[pair["query"]] <= LOWEST:
            kept.append(pair)
    write(options.out / "train.jsonl", kept)
    write(options.out / "test-packaged.jsonl", test)
    for name in OPEN_SETS:
        write(options.out / f"test-{name}.jsonl", open_test(options.open / "eval" / name, options.test))


def intervals(queries: list[str], measure, samples: int = 2000) -> tuple[float, float]:
    """The 95 % percentile interval of a measure of row numbers, over samples of queries."""
    of: dict[str, list[int]] = {}
    for number, query in enumerate(queries):
        of.setdefault(query, []).append(number)
    groups_, draw, values = [np.array(v) for v in of.values()], np.random.default_rng(0), []
    for _ in range(samples):
        chosen = np.concatenate([groups_[i] for i in draw.integers(len(groups_), size=len(groups_))])
        values.append(measure(chosen))
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Probability that a positive has the higher score (ties count half)."""
    from scipy.stats import rankdata

    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return float("nan")
    return float((rankdata(scores)[positive].sum() - many * (many + 1) / 2) / (many * few))


def overlap(query: str, document: str) -> float:
    """Share of the query's pairs of characters that the document has, the yardstick."""
    pairs = {query[i : i + 2] for i in range(len(query) - 1)}
    return sum(pair in document for pair in pairs) / max(1, len(pairs))


def report(options: argparse.Namespace) -> None:
    """Grade the held-out pairs, and print the agreement."""
    from mar_st.graded.grader import Grader

    grader = Grader(options.folder / "judge")
    agreements = {}
    for file in sorted(options.folder.glob("test-*.jsonl")):
        pairs = some_queries(rows(file), options.queries)
        scores = grader.scores([(pair["query"], pair["document"]) for pair in pairs])
        agreements[file.stem.removeprefix("test-")] = agreement(
            pairs, scores, grader.thresholds.label(scores)
        )
    print(json.dumps(agreements, indent=2))


def agreement(pairs: list[dict], scores: np.ndarray, given: np.ndarray) -> dict:
    """AUC and kappa of scores and labels with those of the pairs."""
    from mar_st.graded.grader import weighted_kappa

    labels = np.array([pair["label"] for pair in pairs])
    queries, positive = [pair["query"] for pair in pairs], labels >= 3
    words = np.array([overlap(pair["query"], pair["document"]) for pair in pairs])
    yes, right = (given >= 3).astype(int), positive.astype(int)
    measures = {
        "AUC": lambda some: auc(scores[some], positive[some]),
        "AUC of word overlap": lambda some: auc(words[some], positive[some]),
        "kappa of positives": lambda some: weighted_kappa(yes[some], right[some], 2),
    }
    if len(set(labels.tolist())) > 2:
        measures["weighted kappa"] = lambda some: weighted_kappa(given[some], labels[some], 5)
    row = {"pairs": len(pairs), "queries": len(set(queries))}
    for name, measure in measures.items():
        low, high = intervals(queries, measure)
        row[name] = f"{measure(np.arange(len(pairs))):.3f} [{low:.3f}, {high:.3f}]"
    return row


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Agreement of a learned judge with held-out labels.")
    commands = parser.add_subparsers(required=True)
    data = commands.add_parser("data")
    data.add_argument("--open", type=Path, required=True)
    data.add_argument("--out", type=Path, required=True)
    data.add_argument("--queries", type=int, default=220, help="packaged queries to train on")
    data.add_argument("--pairs", type=int, default=1000, help="open questions to train on")
    data.add_argument("--test", type=int, default=150, help="open questions to report on, per test")
    data.set_defaults(run=make)
    shown = commands.add_parser("report")
    shown.add_argument("folder", type=Path)
    shown.add_argument("--queries", type=int, default=1000, help="of each test at most, drawn at random")
    shown.set_defaults(run=report)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
