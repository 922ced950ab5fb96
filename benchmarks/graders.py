"""Graders against physicians on the statements of K-QA, and what a labelled share corrects.

    python benchmarks/graders.py NLI_medical_annotator.csv out --embedding MODEL --graders graders.yaml

K-QA (github.com/Itaymanes/K-QA, MIT) has 399 statements about answers of four LLMs to 50 questions, each with
the labels of three physicians: entailment, neutral, contradiction. Only an entailed statement is met. Shared
words and the cosine with the nearest sentence of the answer become verdicts by a threshold, which is chosen
for each fifth of the questions by Cohen's kappa on the others.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

import numpy as np

from mar_st.options import read_yaml
from mar_st.text.words import query_terms
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.labels.agreement import of_two_raters
from medteb_mteb.curation.rubrics.graders import share_of_words
from medteb_mteb.curation.rubrics.meta import GRADERS
from medteb_mteb.curation.rubrics.people import NONE, Labelled, calibrated_mean
from medteb_mteb.curation.step import perform
from medteb_mteb.report.page import markdown_table

FOLDS, SEED = 5, 42
#: Share of the questions whose labels correct the mean, and number of random draws of them.
SHARE, DRAWS = 0.3, 100


def read(file: Path) -> list[dict]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return [
            {
                "question": row["Question"],
                "answer": row["answer"],
                "criterion": row["claim"],
                "category": row["category_x"].replace("_", " ").lower(),
                "labels": [row[f"label_{number}"] for number in range(3)],
            }
            for row in csv.DictReader(stream)
        ]


def labels_of(rows: list[dict]) -> Labelled:
    labels = np.array([[int(label == "Entailment") for label in row["labels"]] for row in rows])
    return Labelled(labels, np.unique([row["question"] for row in rows], return_inverse=True)[1])


def by_words(rows: list[dict]) -> np.ndarray:
    return np.array([share_of_words(row["criterion"], set(query_terms(row["answer"]))) for row in rows])


def by_cosine(rows: list[dict], model: str) -> np.ndarray:
    """The cosine of a statement with the nearest sentence of the answer."""
    from sentence_transformers import SentenceTransformer

    sentences = [re.split(r"(?<=[.!?])\s+|\n+", row["answer"]) for row in rows]
    texts = list(
        dict.fromkeys([row["criterion"] for row in rows] + [one for some in sentences for one in some])
    )
    encoder = SentenceTransformer(model, device="cpu")
    vectors = encoder.encode(texts, prompt="query: " if "e5" in model else "", normalize_embeddings=True)
    place = {text: number for number, text in enumerate(texts)}
    return np.array(
        [
            (vectors[[place[one] for one in some]] @ vectors[place[row["criterion"]]]).max()
            for row, some in zip(rows, sentences, strict=True)
        ]
    )


def crossed(scores: np.ndarray, data: Labelled) -> np.ndarray:
    """Verdicts by thresholds that are chosen on other questions."""
    person = data.majority(range(3))
    fold = np.random.default_rng(SEED).permutation(data.number)[data.questions] % FOLDS
    verdicts = np.empty(len(scores), int)
    for number in range(FOLDS):
        others = data[fold != number]
        tried = np.unique(np.quantile(scores, np.linspace(0.02, 0.98, 49)))
        cells = [
            others.cells(person[fold != number], (scores[fold != number] >= one).astype(int)) for one in tried
        ]
        kappas = of_two_raters(np.stack([one.sum(0) for one in cells]))[0]
        best = tried[int(np.nanargmax(kappas))]
        verdicts[fold == number] = scores[fold == number] >= best
    return verdicts


def corrected(verdicts: np.ndarray, data: Labelled) -> list[str]:
    """How well a labelled share of the questions corrects the mean of a grader."""
    random, truth = np.random.default_rng(SEED), data.majority(range(3)).mean()
    errors, widths, hits = [], [], 0
    for _ in range(DRAWS):
        chosen = random.permutation(data.number) < SHARE * data.number
        labels = np.where(chosen[data.questions][:, None], data.labels, NONE)
        found = calibrated_mean(Labelled(labels, data.questions), verdicts)
        errors.append(found.value - truth)
        widths.append(found.high - found.low)
        hits += found.low <= truth <= found.high
    error = np.sqrt(np.mean(np.square(errors)))
    return [f"{np.mean(errors):+.3f}", f"{error:.3f}", f"{np.mean(widths):.2f}", f"{hits / DRAWS:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="NLI_medical_annotator.csv of K-QA")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--embedding", help="embedding model, for the cosine")
    parser.add_argument("--graders", type=Path, help="YAML file of further graders")
    given = parser.parse_args()
    rows = read(given.file)
    data = labels_of(rows)
    verdicts = {"words": crossed(by_words(rows), data)}
    if given.embedding:
        verdicts["cosine"] = crossed(by_cosine(rows, given.embedding), data)
    for place, row in enumerate(rows):
        row["verdicts"] = {name: bool(some[place]) for name, some in verdicts.items()}
    given.out.mkdir(parents=True, exist_ok=True)
    labelled = given.out / "labelled.jsonl"
    write_rows(labelled, rows)
    graders = read_yaml(given.graders) if given.graders else ()
    out = given.out / "agreement"
    perform(GRADERS, GRADERS.settings(labelled=labelled, graders=graders, out=out, already_anonymous=True))
    print((out / "agreement.md").read_text(encoding="utf-8"))
    table = [("grader", "mean error", "root mean square error", "width of the interval", "coverage")]
    nothing = np.zeros(len(rows), int)
    for name, some in {"the labelled share alone": nothing, **verdicts}.items():
        table.append((name, *corrected(some, data)))
    print(f"Share of met statements from the labels of {SHARE:.0%} of the questions, {DRAWS} random draws:\n")
    print(markdown_table(table))


if __name__ == "__main__":
    main()
