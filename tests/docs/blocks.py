"""Code blocks of the README and the docs, and a working directory in which they are executed.

Blocks run in this process, in the order of `EXECUTED`, on a few texts and small models that stand in for those
of the user. What does not run is in `NOT_RUN`, with the reason.
"""

# ruff: noqa: E501

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mar_st.model.names import packaged_folder

if TYPE_CHECKING:
    from collections.abc import Callable

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
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, (indent, language, code) in enumerate(FENCE.findall(text)):
            name = f"{page.relative_to(ROOT).as_posix().removeprefix('docs/')}:{number}"
            language = "bash" if language == "sh" else language
            found[name] = Block(name, language, re.sub(f"^{indent}", "", code, flags=re.MULTILINE))
    return {name: block for name, block in found.items() if block.language in ("bash", "python", "yaml")}


BLOCKS = read_blocks()


def of(page: str, *numbers: int) -> list[str]:
    return [f"{page}:{number}" for number in numbers]


#: Blocks that are executed, in their order, each list in a workspace of its own. A block in YAML is written to the
#: file beside its name.
EXECUTED: dict[str, list[str | tuple[str, str]]] = {
    "search": [
        *of("how-to/encode.md", 0, 1, 2, 4),
        *of("how-to/search.md", 0, 1, 2, 3, 6, 8),
        *of("how-to/serve.md", 0, 4, 5, 6, 7, 15),
        *of("how-to/lookup.md", 1, 2, 3, 4),
        *of("concepts/durability.md", 0, 1),
        *of("concepts/mar.md", 0),
        *of("how-to/export.md", 1),
        *of("how-to/align-to-an-existing-index.md", 1, 7, 9),
        *of("how-to/train-on-your-data.md", 4, 5),
        *of("README.md", 6, 8),
        *of("index.md", 1),
        *of("how-to/search.md", 7),
        *of("how-to/lookup.md", 0),
    ],
    "anonymising": of("how-to/anonymize.md", 0, 2, 3, 4, 5, 6, 8, 9, 10),
    "tutorial": [
        *of("tutorials/build-a-benchmark.md", 2, 3, 4),
        ("tutorials/build-a-benchmark.md:5", "judges.yaml"),
        *of("tutorials/build-a-benchmark.md", 6, 7, 8, 9),
        ("tutorials/build-a-benchmark.md:11", "rewriter.yaml"),
        *of("tutorials/build-a-benchmark.md", 12, 13),
        *of("concepts/durability.md", 2),
        *of("tutorials/build-a-benchmark.md", 14),
        *of("how-to/validate.md", 1),
        *of("how-to/editions.md", 6),
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
        *of("README.md", 9),
        *of("index.md", 2),
        *of("how-to/build.md", 4),
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
        *of("how-to/score-your-data.md", 0, 1, 2, 3),
        *of("how-to/train-on-your-data.md", 3),
        *of("benchmarks/nano.md", 1),
        *of("README.md", 1, 2, 3, 5),
        *of("index.md", 0),
        *of("how-to/editions.md", 0, 1, 2),
        *of("how-to/validate.md", 4),
    ],
    "training data": [
        *of("how-to/train-on-your-data.md", 0),
        *of("how-to/training-data.md", 2, 4, 5),
        *of("studies/mar-small.md", 0),
        *of("reference/recipes.md", 0),
    ],
}

#: Blocks that show a part of a recipe, a field that they set, and its length (`test_blocks_recipes.py`).
PARTS = {
    "how-to/train-on-your-data.md:1": ("stages", 4),
    "how-to/sts.md:5": ("data", 1),
    "how-to/synthetic-data.md:6": ("data", 2),
    "how-to/training-data.md:0": ("data", 5),
    "how-to/training-data.md:3": ("data", 1),
    "how-to/training-sets.md:5": ("stages", 2),
    "reference/recipes.md:6": ("stages", 1),
}

#: Lines of commands that no test runs, by a pattern, and why. Those of `mar` and `medteb` are parsed.
NOT_RUN = {
    r"^(\.venv/bin/)?(pip|npm|sudo|make|git|ln|chmod|for|done)\b": "installs something, or changes the system",
    r"^(\.venv/bin/)?mar serve\b|^curl|^python -m http.server": "runs, or asks, a server until it is stopped; tests of the server do so",
    r"^hf download": "downloads from the Hub",
    r"^medteb build (fetch|relatives)|MEDTEB_CONTACT": "asks public servers, or needs what they gave",
    r"^medteb report (sources|time|tsne|similarities|speed)": "needs data sets that may not be shipped",
    r"^mar push|--push-to-hub": "writes to the Hub",
    r"medteb nano|built/build|-b CMIRB|\bNano(CMTEB|Medical)\b|raw/(liveqa|mirage)|--data FOLDER -m bm25-char-bigram|DATA=data medteb run .*(MedQuAD|BioASQ|Medical\()": "needs data sets that may not be shipped, or builds of hours",
    r"redundancy results": "needs results of many models",
    r"edition build mini": "takes half a minute; a test of the edition does so, and compares every byte",
    r"^(torchrun|accelerate|export MAR_DEEPSPEED)\b|\bCUDA_VISIBLE_DEVICES=|--engine ray": "needs GPUs, or a cluster",
    r"^(PYTHONPATH=src )?python (benchmarks/|-m venv)|^pytest": "measures, or tests, for minutes",
    r"^python -c": "writes a key",
    r"^(\w+=\w+ )?mar (train|ablate|align|cross-encoder|trim)\b|^mar export (?!.*--format (numpy|lookup))": "trains or exports for minutes",
    r"^mar plan\b": "reads shapes of backbones, measures a device or trains",
    r"^mteb run -b|milvus:http": "needs the Hub, or a Milvus server",
    r"\$MAR_STORE": "needs a store of paid vectors",
    r"api\.openai\.com": "needs an API key",
}


def is_marked(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in NOT_RUN)


#: Folders that a block writes with other settings than a block before it.
FRESH = {
    "how-to/encode.md:4": ("vectors",),
    "how-to/search.md:0": ("vectors",),
    "how-to/search.md:3": ("index",),
    "how-to/serve.md:0": ("vectors", "index"),
    "how-to/serve.md:5": ("vectors", "index"),
    "how-to/lookup.md:3": ("exported",),
    "how-to/lookup.md:4": ("vectors",),
    "how-to/train-on-your-data.md:4": ("vectors", "index"),
    "README.md:8": ("vectors", "index"),
    "index.md:1": ("vectors", "index"),
    "how-to/pool.md:1": ("pools",),
    "how-to/judge.md:7": ("judged",),
    "how-to/training-sets.md:8": ("train/judged", "train/aligned", "train/checked"),
    "how-to/sts.md:6": ("data",),
    "how-to/synthetic-data.md:5": ("synthetic/tasks",),
    "how-to/synthetic-data.md:7": ("synthetic/tasks",),
    "studies/mar-small.md:0": ("mined",),
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


class Workspace:
    """A working directory in which blocks run, one after another."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.swapped = folder, patch, dict(STAND_INS)
        self.names: dict[str, Any] = {}
        #: What a user does before a command that begins so.
        self.before: dict[str, Callable[[], object]] = {}
        (folder / "another-model").symlink_to(packaged_folder())
        patch.chdir(folder)
        for name in ("MEDTEB_DATA", "MAR_STORE", "MAR_HOME", "MEDTEB_ANSWERS", "MEDTEB_JOURNAL"):
            patch.delenv(name, raising=False)

    def swap(self, text: str) -> str:
        for name, other in self.swapped.items():
            text = text.replace(name, other)
        return text

    def run(self, step: str | tuple[str, str]) -> None:
        name, file = (step, None) if isinstance(step, str) else step
        for folder in FRESH.get(name, ()):
            shutil.rmtree(self.folder / folder)
        block = BLOCKS[name]
        if block.language == "python":
            exec(compile(self.swap(block.code), name, "exec"), self.names)
        elif block.language == "yaml":
            assert file, f"{name}: to which file?"
            self.text(file, self.swap(block.code))
        else:
            ran = [self.command(line) for line in block.lines() if not is_marked(line)]
            assert ran, f"{name}: nothing was run"

    def command(self, line: str) -> None:
        if line.startswith("python examples/rule_judges.py"):  # the fixture `rules` has started them
            assert "http://127.0.0.1:8900/v1" in self.swapped
            return
        for beginning, prepare in self.before.items():
            if line.startswith(beginning):
                prepare()
        line = self.swap(line)
        if "/REVISION/" in line:
            (folder,) = (
                path for path in Path("results/predictions/medteb__mar-mini").iterdir() if path.is_dir()
            )
            line = line.replace("/REVISION/", f"/{folder.name}/")
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            self.patch.setenv(*words[1].split("=", 1))
            return
        if ">" in words:
            words = words[: words.index(">")]
        with pytest.MonkeyPatch.context() as patch:
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                patch.setenv(*words.pop(0).split("=", 1))
            program, *arguments = words
            if program == "mteb":
                from mteb.cli.build_cli import main as mteb

                patch.setattr("sys.argv", words)
                mteb()
                return
            if program == "medteb":
                from medteb_mteb.cli import app
            else:
                assert program == "mar", line
                from mar_st.cli import app
            code = app(arguments, standalone_mode=False)
            # A set of a dozen queries does not pass validation.
            assert not code or arguments[0] == "validate", f"{line}: exit code {code}"

    def rows(self, name: str, rows: list[dict]) -> Path:
        return self.text(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def text(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path
