"""``python -m tools.mini.sample`` writes the sample of mar-zh: short articles, and everyday questions.

An article answers one question about one condition, drug, symptom or examination with the phrases of the
knowledge tables. ``everyday.tsv`` holds questions in the words of patients, written before any model had
searched the articles, and the articles that answer each.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.mini.cells import NAME_LISTS, SPECIAL_INTENT, Cell, Entity, World
from tools.mini.knowledge import load_knowledge
from tools.mini.queries import fit
from tools.mini.wording import wording_of

SAMPLE = Path(__file__).parents[2] / "models" / "mar-zh" / "src" / "mar_zh" / "sample"
EVERYDAY = Path(__file__).with_name("everyday.tsv")


def article(world: World, cell: Cell) -> dict[str, str]:
    """Return title and text of the article that answers a cell."""
    entity = world.entities[cell.entity]
    wording = wording_of(entity, cell.intent)
    joined = ("、" if cell.intent in NAME_LISTS else "；").join(dict.fromkeys(world.facts(cell)))
    title, answer = (
        fit(template, entity).format(n=entity.name, g=cell.group, l=joined)
        for template in (wording.titles[0], wording.say[0])
    )
    closing = ""
    if entity.kind == "condition" and cell.intent != "department":
        closing = f"就诊科室：{entity.facts['department'][0]}。"
    return {"title": title, "text": f"{_opening(entity)}{answer.rstrip('。')}。{closing}"}


def _opening(entity: Entity) -> str:
    """Return a sentence with the other names of an entity, among them those of patients."""
    names = "、".join(entity.aliases)
    words = "" if entity.kind == "drug" else "".join(f"“{word}”" for word in entity.lay[:2])
    known = f"{'商品名有' if entity.kind == 'drug' else '又称'}{names}" if names else ""
    said = f"患者常说{words}" if words else ""
    rest = "，".join(part for part in (known, said) if part)
    return f"{entity.name}{rest}。" if known else f"{entity.name}，{rest}。" if rest else ""


def write_sample(folder: Path) -> None:
    """Write `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv` into a folder."""
    world = World(load_knowledge())
    cells = [cell for cell in world.cells if not cell.group or cell.intent == SPECIAL_INTENT]
    ids = {cell: f"d{number}" for number, cell in enumerate(cells)}
    questions = [line.split("\t") for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]
    corpus = [{"_id": ids[cell], **article(world, cell)} for cell in cells]
    queries = [{"_id": f"q{number}", "text": text} for number, (text, _) in enumerate(questions)]
    labels = [
        f"q{number}\t{ids[Cell(*name.split('/'))]}\t1"
        for number, (_, answers) in enumerate(questions)
        for name in answers.split()
    ]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    lines = "".join(f"{line}\n" for line in ("query-id\tcorpus-id\tscore", *labels))
    (folder / "qrels" / "test.tsv").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    write_sample(SAMPLE)
