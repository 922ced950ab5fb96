"""Score models on the development half or, logged, on the test half of Chinese medical sets.

usage: python benchmarks/chinese.py MODELS.yaml --data FOLDER --store FOLDER [--test] [--against NAME ...]
           [--documents N] [--questions N] [--kinds]

MODELS.yaml maps a name to `path` (a model folder), and maybe `query` (a query encoder of that model),
`prompt` (put before queries; default: the model's own), `documents` (a folder with the same document encoder,
whose vectors are stored) and `lowercase` (of all texts); or a name to a list of these, one per training seed,
in the same order for all names. `bm25` is a row, too.
Every set is divided by a hash of the text of each question, so a question is in the same half of all sets.
Settings are chosen on the development half; each use of `--test` adds a line per model to
models/mar-zh/test-log.tsv. `--documents` and `--questions` thin out every set, by the hash again, for a slow
machine: the judged documents stay, and reranking is left out. `--kinds` adds a table by length of the
question, and one of changed questions (`noise.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from mar_st import MAR
from mar_st.evaluation.statistics import Mixed, Scores, Seeds, bootstrap, holm, mixed
from mar_st.evaluation.tasks import Task, TaskData, load_task, score_vectors
from mar_st.model.digest import modules_digest
from mar_st.model.mar import open_model
from mar_st.modules.arrangement import route
from mar_st.teachers.model import ModelTeacher
from mar_st.teachers.store import TeacherStore
from mar_st.text.texts import normalise
from mar_st.text.words import BM25Index, character_bigrams

#: Columns, and the sets behind each. Sets of one column share their questions; a question counts once, with
#: the mean of its scores.
COLUMNS = {
    "toyhom": ("eval/toyhom-retrieval",),
    "cmedir": ("eval/cmedir-retrieval",),
    "cmedqa": ("eval/cmedqa-retrieval", "eval/cmedqa-rerank"),
    "huatuo": ("open/eval/huatuo-retrieval",),
    "generated": ("open/eval/generated-retrieval",),
}
#: The columns that are averaged: all, and those with questions of people.
MEANS = {"mean of all": tuple(COLUMNS), "mean without generated": tuple(COLUMNS)[:-1]}
PAIRS = "eval/cmedqq-sts"
DRAWS = 10_000
#: Characters of a question: the upper ends of the classes.
LENGTHS = (10, 20, 40, 80)
LOG = Path(__file__).parents[1] / "models" / "mar-zh" / "test-log.tsv"


def digest_of(text: str) -> bytes:
    """Return a hash of a normalised text."""
    return hashlib.sha256(normalise(text).encode()).digest()


def half(text: str) -> str:
    """Return `dev` or `test`."""
    return "test" if digest_of(text)[0] % 2 else "dev"


def load(data: Path, part: str, documents: int | None, questions: int | None) -> dict[str, TaskData]:
    """Return the sets with only the questions of one half; documents are not divided.

    Args:
        data: Folder that holds the sets.
        part: `dev` or `test`.
        documents: Number of documents of a set, if its judged ones are fewer; default: all.
        questions: Maximum number of questions of a set.
    """
    sets = {}
    for name in (*(one for sets in COLUMNS.values() for one in sets), PAIRS):
        metric = {"metric": "spearman"} if name == PAIRS else {}
        whole = load_task(Task(name=Path(name).name, path=str(data / name), **metric))
        if documents is not None and whole.type == "rerank":
            continue
        mine = sorted((key for key, text in whole.queries.items() if half(text) == part),
                      key=lambda key: digest_of(whole.queries[key]))[:questions]  # fmt: skip
        pairs = [number for number, (first, _) in enumerate(whole.pairs) if half(first) == part]
        sets[name] = TaskData(
            task=whole.task, type=whole.type, metric=whole.metric, digest=whole.digest,
            queries={key: whole.queries[key] for key in mine}, qrels={key: whole.qrels[key] for key in mine},
            corpus=thinned(whole.corpus, {one for key in mine for one in whole.qrels[key]}, documents),
            candidates=whole.candidates, pairs=[whole.pairs[number] for number in pairs],
            gold=[whole.gold[number] for number in pairs],
        )  # fmt: skip
    return sets


def thinned(corpus: dict[str, str], judged: set[str], number: int | None) -> dict[str, str]:
    """Return the judged documents, and others up to a number of documents."""
    if number is None:
        return corpus
    others = sorted(corpus.keys() - judged, key=lambda key: digest_of(corpus[key]))
    kept = judged | set(others[: max(0, number - len(judged))])
    return {key: text for key, text in corpus.items() if key in kept}


class Encoder:
    """Vectors of a model, kept in a store."""

    def __init__(
        self,
        store: Path,
        path: str,
        query: str | None = None,
        prompt: str | None = None,
        lowercase: bool = False,
        documents: str | None = None,
    ) -> None:
        self.lowercase = lowercase
        self.documents = self if documents is None else Encoder(store, documents, lowercase=lowercase)
        torch.manual_seed(0)  # for weights that a checkpoint lacks: others would have other vectors
        model = MAR.from_pretrained(path, query=query) if query else open_model(path)
        teacher = ModelTeacher.of_model(model.float().eval(), TeacherStore(store))
        self.teacher = teacher if prompt is None else teacher.with_query_prompt(prompt)
        self.digest = modules_digest(route(model, "query"))[:12]

    def values(self, data: TaskData) -> list[float]:
        """Return a score per question, or a similarity per pair."""
        if data.type == "sts":
            first, second = (self._vectors([pair[side] for pair in data.pairs], "query") for side in (0, 1))
            return [float(value) for value in (first * second).sum(dim=1)]
        queries = self._vectors(list(data.queries.values()), "query")
        documents = self.documents._vectors(list(data.corpus.values()), "document")
        return score_vectors(data, queries, documents, lambda one, other: one @ other.T)

    def _vectors(self, texts: list[str], role: Any) -> torch.Tensor:
        if self.lowercase:
            texts = [text.lower() for text in texts]
        vectors = torch.tensor(np.asarray(self.teacher.vectors(texts, role)[:], dtype=np.float32))
        return torch.nn.functional.normalize(vectors, dim=1)


class Lexical:
    """BM25 over pairs of characters."""

    digest = "-"

    def values(self, data: TaskData) -> list[float]:
        """Return a score per question, or, for pairs, the score of the second text for the first."""
        if data.type == "sts":
            index = BM25Index([character_bigrams(second) for _, second in data.pairs])
            found = [index.scores(character_bigrams(first))[n] for n, (first, _) in enumerate(data.pairs)]
            return [float(value) for value in found]
        index = BM25Index([character_bigrams(text) for text in data.corpus.values()])
        scores = [index.scores(character_bigrams(text)) for text in data.queries.values()]
        rows = torch.arange(len(scores), dtype=torch.float32)[:, None]
        table = torch.tensor(np.stack(scores))
        return score_vectors(data, rows, rows, lambda some, _: table[some[:, 0].long()])


@dataclass
class Row:
    """Scores of one model.

    Attributes:
        columns: Values of the distinct questions by column, `(seeds, questions)`.
        pairs: Similarities of the pairs, and their labels.
        lengths: Number of characters of the questions by column.
    """

    columns: dict[str, np.ndarray]
    pairs: Scores
    lengths: dict[str, np.ndarray]


def measure(seeds: list[Any], sets: dict[str, TaskData]) -> Row:
    """Return the scores of a model; values of a question in several sets of a column become their mean."""
    columns, lengths = {}, {}
    for column, names in COLUMNS.items():
        found: dict[str, list[np.ndarray]] = {}
        for data in (sets[name] for name in names if name in sets):
            values = np.array([model.values(data) for model in seeds]).T
            for key, value in zip(data.qrels, values, strict=True):
                found.setdefault(normalise(data.queries[key]), []).append(value)
        columns[column] = np.array([np.mean(found[text], axis=0) for text in sorted(found)]).T
        lengths[column] = np.array([len(text) for text in sorted(found)])
    return Row(columns, sets[PAIRS].scores([model.values(sets[PAIRS]) for model in seeds]), lengths)


def estimate(means: np.ndarray, drawn: np.ndarray) -> Mixed:
    """Return the mean of scores or differences, `(seeds,)`, and its interval over seeds and questions."""
    spread = float(means.var(ddof=1)) if len(means) > 1 else 0.0
    return mixed(Seeds(means, spread, len(means) - 1), Seeds(np.zeros(1), 0.0, 0), drawn)


def average(columns: dict[str, np.ndarray], names: tuple[str, ...]) -> Mixed:
    """Return the mean over columns of values `(seeds, questions)`; questions are drawn within each column."""
    draws = [
        bootstrap(Scores(columns[name]), resamples=DRAWS, seed=[0, list(COLUMNS).index(name)])
        for name in names
    ]
    means = np.mean([columns[name].mean(axis=1) for name in names], axis=0)
    return estimate(means, np.mean(draws, axis=0))


def paired(first: Row, second: Row, names: tuple[str, ...]) -> Mixed:
    """Return the difference of two models, paired by question and, if both have several, by seed."""
    return average({name: first.columns[name] - second.columns[name] for name in names}, names)


def table(rows: dict[str, Row]) -> list[str]:
    """Return a Markdown table of all rows."""
    lines = [
        f"| model | {' | '.join([*COLUMNS, *MEANS])} | cmedqq |",
        "|---" * (len(COLUMNS) + 4) + "|",
    ]
    for name, row in rows.items():
        found = [average(row.columns, names) for names in MEANS.values()]
        found.append(estimate(row.pairs.per_seed(), bootstrap(row.pairs, resamples=1000, seed=[0])))
        cells = [f"{values.mean():.3f}" for values in row.columns.values()]
        cells += [f"{one.difference:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    sizes = ", ".join(f"{name} {len(values)}" for name, values in next(iter(rows.values())).lengths.items())
    lines += ["", f"Questions: {sizes}; pairs: {next(iter(rows.values())).pairs.values.shape[1]}."]
    return lines


def differences(rows: dict[str, Row], against: str) -> list[str]:
    """Return a Markdown table of the differences from one of the rows."""
    everything = MEANS["mean of all"]
    others = [name for name in rows if name != against]
    lines = [
        "",
        f"| minus {against} | {' | '.join([*COLUMNS, *MEANS])} | p of all | share of all |",
        "|---" * (len(COLUMNS) + 5) + "|",
    ]
    found = {name: paired(rows[name], rows[against], everything) for name in others}
    adjusted = holm({name: result.p for name, result in found.items()})
    for name in others:
        gaps = [
            paired(rows[name], rows[against], names)
            for names in [*((column,) for column in COLUMNS), *MEANS.values()]
        ]
        means = [average(rows[one].columns, everything).difference for one in (name, against)]
        cells = [f"{gap.difference:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" for gap in gaps]
        cells += [f"{adjusted[name]:.2g}", f"{means[0] / means[1]:.2%}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def by_length(rows: dict[str, Row]) -> list[str]:
    """Return a Markdown table of the mean over all questions of a length."""
    limits = [0, *LENGTHS, 10**9]
    names = [*(f"up to {limit}" for limit in LENGTHS), f"over {LENGTHS[-1]}"]
    lengths = np.concatenate(list(next(iter(rows.values())).lengths.values()))
    within = [(lengths > low) & (lengths <= high) for low, high in pairwise(limits)]
    heads = [f"{name} ({int(mask.sum())})" for name, mask in zip(names, within, strict=True)]
    lines = ["", f"| characters (questions) | {' | '.join(heads)} |", "|---" * (len(names) + 1) + "|"]
    for name, row in rows.items():
        values = np.concatenate([values.mean(axis=0) for values in row.columns.values()])
        lines.append(f"| {name} | {' | '.join(f'{values[mask].mean():.3f}' for mask in within)} |")
    return lines


def robustness(models: dict[str, list[Any]], sets: dict[str, TaskData]) -> list[str]:
    """Return a Markdown table of the mean of all columns for changed questions."""
    from noise import changes  # lazy: opencc, pypinyin

    ways = changes(text for data in sets.values() if data.type != "sts" for text in data.queries.values())
    lines = ["", f"| questions | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    for name, seeds in models.items():
        cells = []
        for change in ways.values():
            changed = {
                key: dataclasses.replace(data, queries={k: change(t) for k, t in data.queries.items()})
                for key, data in sets.items()
                if data.type != "sts"
            }
            means = [
                np.mean(
                    [
                        np.mean(model.values(changed[one]))
                        for model in seeds
                        for one in names
                        if one in changed
                    ]
                )
                for names in COLUMNS.values()
            ]
            cells.append(f"{np.mean(means):.3f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def log(names: dict[str, str]) -> None:
    """Add a line per model to the log of uses of the test half."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=LOG.parent, capture_output=True, text=True, check=False
    ).stdout.strip()
    today = datetime.now(UTC).date()
    with LOG.open("a", encoding="utf-8") as file:
        file.writelines(f"{today}\t{commit}\t{name}\t{digest}\n" for name, digest in names.items())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, help="YAML file of models")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds eval and open")
    parser.add_argument("--store", type=Path, required=True, help="folder that keeps vectors")
    parser.add_argument("--test", action="store_true", help="score the test half, and log it")
    parser.add_argument("--against", nargs="+", default=[], help="models that the others are compared with")
    parser.add_argument("--documents", type=int, help="documents of a set, judged ones aside; default: all")
    parser.add_argument("--questions", type=int, help="maximum number of questions of a set; default: all")
    parser.add_argument("--kinds", action="store_true", help="tables by length, and of changed questions")
    settings = parser.parse_args()
    part = "test" if settings.test else "dev"
    sets = load(settings.data, part, settings.documents, settings.questions)
    listed = yaml.safe_load(settings.models.read_text(encoding="utf-8"))
    models: dict[str, list[Any]] = {"bm25": [Lexical()]}
    for name, given in listed.items():
        seeds = given if isinstance(given, list) else [given]
        models[name] = [Encoder(settings.store, **seed) for seed in seeds]
    rows = {name: measure(model, sets) for name, model in models.items()}
    if settings.test:
        log({name: " ".join(model.digest for model in seeds) for name, seeds in models.items()})
    lines = table(rows)
    for name in settings.against:
        lines += differences(rows, name)
    if settings.kinds:
        lines += [*by_length(rows), *robustness(models, sets)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
