"""Code blocks of the README and the docs: which are executed, in what order, and why a line is not.

Blocks run in the order of `EXECUTED`, on a few texts and small models that stand in for those of the user
(`workspace.py`). Lines that do not run are in `NOT_RUN`, with the reason.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    name: str
    language: str
    code: str

    def lines(self) -> list[str]:
        """Commands of a shell block; a continued line is one."""
        lines = re.sub(r"\\\n\s*", " ", self.code).splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def read_blocks() -> dict[str, Block]:
    """Blocks in bash, Python and YAML by page and number: `how-to/encode.md:0`."""
    blocks = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, (indent, language, code) in enumerate(FENCE.findall(text)):
            name = f"{page.relative_to(ROOT).as_posix().removeprefix('docs/')}:{number}"
            language = "bash" if language == "sh" else language
            blocks[name] = Block(name, language, re.sub(f"^{indent}", "", code, flags=re.MULTILINE))
    return {name: block for name, block in blocks.items() if block.language in ("bash", "python", "yaml")}


BLOCKS = read_blocks()


def of(page: str, *numbers: int) -> list[str]:
    return [f"{page}:{number}" for number in numbers]


#: Blocks that are executed, in their order, each list in a workspace of its own. A block in YAML is written to the
#: file beside its name.
EXECUTED: dict[str, list[str | tuple[str, str]]] = {
    "search": [
        *of("how-to/encode.md", 0, 1, 2, 4),
        *of("how-to/search.md", 0, 1, 2, 3, 6, 8),
        *of("how-to/lookup.md", 1, 2, 3, 4),
        *of("concepts/mar.md", 0),
        *of("overview.md", 2),
        *of("how-to/search.md", 4, 7),
        *of("how-to/lookup.md", 0),
    ],
    "serving": [
        *of("how-to/serve.md", 0, 3, 8, 9, 10, 4, 5, 6, 7, 2, 11, 12, 13, 14, 15, 16),
        *of("README.md", 0, 4),
        *of("overview.md", 3),
        *of("index.md", 1),
        *of("how-to/export.md", 0, 1),
    ],
    "exporting": [*of("how-to/export.md", 2, 3)],
    "aligning": [
        *of("how-to/align-to-an-existing-index.md", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
        *of("studies/e5.md", 2),
        *of("concepts/durability.md", 0, 1),
    ],
    "training": [
        *of("how-to/train-on-your-data.md", 2, 3, 4, 5),
        *of("how-to/ablate.md", 3, 5),
        *of("reference/recipes.md", 7),
        *of("how-to/trim.md", 0),
        *of("how-to/judge.md", 5),
    ],
    "packaged recipes": [
        *of("overview.md", 1),
        *of("concepts/mar.md", 1),
        *of("reference/recipes.md", 0, 2, 3, 8),
        *of("how-to/many-gpus.md", 3, 4),
        *of("studies/mar-small.md", 0),
        *of("studies/e5.md", 0),
        *of("how-to/ablate.md", 0, 4),
    ],
    "anonymising": of("how-to/anonymize.md", 0, 2, 3, 4, 5, 6, 8, 9, 10),
    "tutorial": [
        *of("tutorials/build-a-benchmark.md", 2, 3, 4),
        ("tutorials/build-a-benchmark.md:5", "judges.yaml"),
        *of("tutorials/build-a-benchmark.md", 6, 7, 8, 9),
        ("tutorials/build-a-benchmark.md:11", "rewriter.yaml"),
        *of("tutorials/build-a-benchmark.md", 12, 13),
        *of("concepts/durability.md", 2),
        *of("tutorials/build-a-benchmark.md", 14, 15),
        *of("how-to/validate.md", 1),
        *of("how-to/editions.md", 6, 7, 8),
    ],
    "judging": [
        *of("how-to/pool.md", 0, 1),
        ("how-to/judge.md:1", "judges.yaml"),
        *of("how-to/judge.md", 0),
        ("how-to/judge.md:3", "judges.yaml"),
        *of("how-to/judge.md", 2, 7),
        *of("how-to/consensus.md", 0, 2),
        *of("how-to/assemble.md", 0, 2),
        *of("how-to/validate.md", 0, 2),
        *of("how-to/validate.md", 3),
        *of("how-to/audit.md", 0, 1),
        *of("how-to/redundancy.md", 0, 1),
    ],
    "building": [
        *of("how-to/diversify.md", 0, 1),
        ("how-to/build.md:1", "build.yaml"),
        *of("how-to/build.md", 0, 5),
        *of("README.md", 5),
        *of("index.md", 2),
        *of("how-to/build.md", 4),
        *of("how-to/validate.md", 5),
        *of("how-to/editions.md", 4, 5),
    ],
    "writing": [
        ("how-to/answers.md:1", "llm.yaml"),
        *of("how-to/answers.md", 0, 2),
        ("how-to/sts.md:3", "llm.yaml"),
        ("how-to/sts.md:4", "llm.yaml"),
        *of("how-to/sts.md", 1, 2, 6),
        ("how-to/training-sets.md:2", "llm.yaml"),
        *of("how-to/training-sets.md", 0, 1, 4),
        ("how-to/synthetic-data.md:1", "llm.yaml"),
        ("how-to/synthetic-data.md:3", "llm.yaml"),
        *of("how-to/synthetic-data.md", 0, 2, 4, 5, 7),
        *of("how-to/training-sets.md", 6, 8),
    ],
    "scoring": [
        *of("how-to/score-your-data.md", 0, 1, 2, 3, 4),
        *of("benchmarks/nano.md", 1),
        *of("README.md", 1, 3),
        *of("overview.md", 0),
        *of("index.md", 0),
        *of("how-to/editions.md", 0, 1, 2, 3),
        *of("how-to/validate.md", 4),
    ],
    "training data": [
        *of("how-to/train-on-your-data.md", 0),
        *of("how-to/training-data.md", 2, 4, 5),
    ],
    "English sets": of("benchmarks/english.md", 1, 2, 3, 4),
    "English scores": of("benchmarks/english.md", 0, 6, 5),
    "Chinese sets": of("benchmarks/chinese.md", 0, 1),
    "Nano sets": of("benchmarks/nano.md", 0),
}

#: Blocks that show a part of a recipe, a field that they set, and its length (`test_blocks_recipes.py`).
PARTS = {
    "how-to/train-on-your-data.md:1": ("stages", 4),
    "how-to/train-on-your-data.md:6": ("stages", 1),
    "how-to/sts.md:5": ("data", 1),
    "how-to/synthetic-data.md:6": ("data", 2),
    "how-to/training-data.md:0": ("data", 5),
    "how-to/training-data.md:3": ("data", 1),
    "how-to/training-sets.md:5": ("stages", 2),
    "reference/recipes.md:6": ("stages", 1),
}

#: Lines of commands that no test runs, by a pattern, and why. Those of `mar`, `medteb` and `benchmarks/` are parsed.
NOT_RUN = {
    r"^(\.venv/bin/)?(pip|npm|sudo|make|git|for|python -m venv)\b": "installs something, or changes the system",
    r"^pytest -m slow tests/mar_st/serve/api/test_accessibility\.py": "needs what the line before installs",
    r"^hf (download|upload)": "needs the Hub",
    r"^mteb (run -t CMedQAv2-reranking|submit-results)": "needs the Hub, or a login at GitHub",
    r"^mar push\b|--push-to-hub": "writes to the Hub, with a login",
    r"^(torchrun|accelerate|export MAR_DEEPSPEED)\b": "needs several GPUs",
    r"--engine ray": "needs a cluster",
    r"milvus:http": "needs a Milvus server",
    r"^(PYTHONPATH=src )?python benchmarks/": "measures the machine for minutes to hours",
    r"^mar cross-encoder /tmp/learned|^mar export runs/query/model": "needs what another line measures",
    r"^mar train (--rehearse mar-0\.3b-4b|distill)": "needs published weights of gigabytes",
}


def is_marked(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in NOT_RUN)


#: Folders that a block writes with other settings than a block before it.
FRESH = {
    "how-to/encode.md:4": ("vectors",),
    "how-to/search.md:0": ("vectors",),
    "how-to/search.md:3": ("index",),
    "how-to/serve.md:5": ("vectors", "index"),
    "how-to/lookup.md:3": ("exported",),
    "how-to/lookup.md:4": ("vectors",),
    "how-to/export.md:2": ("exported",),
    "how-to/export.md:3": ("exported",),
    "how-to/align-to-an-existing-index.md:2": ("small",),
    "how-to/align-to-an-existing-index.md:3": ("small",),
    "how-to/align-to-an-existing-index.md:4": ("small",),
    "how-to/align-to-an-existing-index.md:5": ("small",),
    "studies/mar-small.md:0": ("mined",),
    "README.md:4": ("vectors", "index"),
    "overview.md:3": ("vectors", "index", "encoder"),
    "index.md:1": ("vectors", "index"),
    "how-to/pool.md:1": ("pools",),
    "how-to/judge.md:7": ("judged",),
    "how-to/training-sets.md:8": ("train/judged", "train/aligned", "train/checked"),
    "how-to/sts.md:6": ("data",),
    "how-to/synthetic-data.md:5": ("synthetic/tasks",),
    "how-to/synthetic-data.md:7": ("synthetic/tasks",),
}

#: Placeholders for a model or a file of the user, in all pages.
STAND_INS = {
    "BAAI/bge-m3": "mar-mini",
    "BAAI/bge-base-zh-v1.5": "mar-mini",
    "Alibaba-NLP/gte-multilingual-base": "another-model",
    "MODEL": "mar-mini",
    "CORPUS": "corpus.jsonl",
    "INDEX": "index",
    "OUT": "ray-vectors",
}
