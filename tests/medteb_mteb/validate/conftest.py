"""A retrieval folder large enough to have slices, judged negatives and pools."""

from __future__ import annotations

import json

import pytest
from tests.conftest import write_jsonl

from medteb_mteb.validate import ValidateSettings, validate

WORDS = ["感冒", "高血压", "糖尿病", "偏头痛", "胃炎", "湿疹", "哮喘", "肺炎", "痛风", "贫血", "骨折", "失眠"]
EVERY = range(len(WORDS))
CARD = "---\nlicense: cc-by-4.0\n---\n" + "Written by hand for tests, from the names of twelve diseases. " * 5


def write_tsv(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join("\t".join(map(str, row)) for row in rows) + "\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """Twelve queries; each has a positive `p`, a judged negative `n`, and an unjudged document `u`."""
    place = tmp_path / "clinic"
    write_jsonl(
        place / "corpus.jsonl",
        [
            {"_id": f"{kind}{i}", "title": word, "text": text.format(word)}
            for i, word in enumerate(WORDS)
            for kind, text in (
                ("p", "得了{}的病人应当在医生指导下用药，并注意休息。"),
                ("n", "{}的病因至今没有完全弄清楚。"),
                ("u", "本院开设{}专科门诊，每周一上午。"),
            )
        ],
    )
    write_jsonl(
        place / "queries.jsonl",
        [{"_id": f"q{i}", "text": f"{word}吃什么药" + "好呢" * i} for i, word in enumerate(WORDS)],
    )
    pairs = [(f"q{i}", f"p{i}", 1) for i in range(len(WORDS))]
    write_tsv(place / "qrels" / "test.tsv", [("query-id", "corpus-id", "score"), *pairs])
    negatives = [(f"q{i}", f"n{i}", 0) for i in range(len(WORDS))]
    write_tsv(place / "labels.tsv", [("query-id", "corpus-id", "score"), *negatives])
    (place / "README.md").write_text(CARD, encoding="utf-8")
    return place


@pytest.fixture
def write_run(tmp_path):
    """Writes a run that ranks `order` (kinds of documents) for every query."""

    def write(name, order, queries=EVERY):
        run = {
            f"q{i}": {f"{kind}{i}": float(len(order) - rank) for rank, kind in enumerate(order)}
            for i in queries
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(run))
        return str(path)

    return write


@pytest.fixture
def verdict_on(folder):
    """The finding with these words in its title: `verdict_on("fairly", pools=...)`."""

    def call(words, **settings):
        page = validate(ValidateSettings(edition=str(folder), **settings))
        by_title = {one.title: one for one in page.findings}
        return by_title.get(words) or next(one for title, one in by_title.items() if words in title)

    return call


@pytest.fixture
def add(folder):
    """Appends lines to a file of the folder."""

    def call(name, *lines):
        with (folder / name).open("a", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)

    return call


@pytest.fixture
def write_pools(tmp_path):
    """Writes a build with pools of every query: `write_pools(bm25="pn", dense="u")`, kinds best first."""

    def write(queries=EVERY, **retrievers):
        rows = []
        for i in queries:
            kinds = list(dict.fromkeys("".join(retrievers.values())))
            ranks = {
                name: [order.index(kind) + 1 if kind in order else None for kind in kinds]
                for name, order in retrievers.items()
            }
            rows.append({"query-id": f"q{i}", "corpus-ids": [f"{kind}{i}" for kind in kinds], "ranks": ranks})
        return write_step(tmp_path / "build", "pool", "pools.jsonl", rows)

    return write


@pytest.fixture
def write_judgements(tmp_path):
    """Writes a build with judgements: `write_judgements(name, judge={"q0 p0": "S", ...})`."""

    def write(name, **judges):
        rows = [
            dict(zip(("query-id", "corpus-id"), pair.split(), strict=True)) | {"judge": judge, "grade": grade}
            for judge, grades in judges.items()
            for pair, grade in grades.items()
        ]
        return write_step(tmp_path / name, "judge", "judgements.jsonl", rows)

    return write


def write_step(build, kind, name, rows):
    (build / kind).mkdir(parents=True, exist_ok=True)
    (build / kind / "step.json").write_text(json.dumps({"step": kind}))
    write_jsonl(build / kind / name, rows)
    return build
