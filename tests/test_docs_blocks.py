"""Code blocks of the pages on search and on anonymising, executed in this process on a few texts."""

# ruff: noqa: E501

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from mar_st.encode import encode_corpus
from mar_st.model.family import add_query_encoder
from mar_st.model.names import packaged_folder
from tests.medteb_mteb.curation.diseases import DISEASES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    name: str
    language: str
    code: str


def blocks() -> dict[str, Block]:
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, (indent, language, code) in enumerate(FENCE.findall(text)):
            name = f"{page.relative_to(ROOT).as_posix().removeprefix('docs/')}:{number}"
            language = "bash" if language == "sh" else language
            found[name] = Block(name, language, re.sub(f"^{indent}", "", code, flags=re.MULTILINE))
    return {name: block for name, block in found.items() if block.language in ("bash", "python", "yaml")}


BLOCKS = blocks()

#: What stands for a model or a file of the user.
STAND_INS = {
    "BAAI/bge-m3": "mar-mini",
    "Alibaba-NLP/gte-multilingual-base": "second",
    "MODEL": "mar-mini",
    "CORPUS": "corpus.jsonl",
    "OUT": "ray-vectors",
    "mar-zh": "ladder",
}

#: Lines of commands that no test runs, by what they hold, and why.
REASONS = {
    r"^(\.venv/bin/)?(pip|npm|sudo|make|hf|ln|chmod|export|for|done) ?": "installs or changes the system",
    r"^mar push|--push-to-hub": "writes to the Hub",
    r"^(torchrun|accelerate)\b|\bCUDA_VISIBLE_DEVICES=|--engine ray": "needs GPUs, or a cluster",
    r"^(PYTHONPATH=src )?python (benchmarks/|-m venv)|^pytest": "measures or tests for minutes",
    r"^mar serve|^curl|^python (-m http.server|examples/rule_judges.py)": "runs, or asks, a server until it is stopped",
    r"^python -c": "writes a key",
    r"^mar (train|ablate|align|cross-encoder|export|trim)\b": "trains or exports for minutes",
    r"^mar plan\b": "reads shapes of backbones, measures a device or trains",
    r"(^|\s)mteb run": "scores a whole edition; `mteb` parses it",
    r"milvus:": "needs a Milvus server",
    r"\$MAR_STORE": "needs a store of paid vectors",
}


def is_marked(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in REASONS)


def lines_of(block: Block) -> list[str]:
    lines = re.sub(r"\\\n\s*", " ", block.code).splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


class World:
    """A working directory in which blocks run, one after another."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **swapped: str) -> None:
        self.folder, self.patch, self.swapped = folder, monkeypatch, STAND_INS | swapped
        self.names: dict[str, object] = {}
        (folder / "second").symlink_to(packaged_folder())
        monkeypatch.chdir(folder)
        for name in ("MEDTEB_DATA", "MAR_STORE", "MAR_HOME", "MEDTEB_ANSWERS", "MEDTEB_JOURNAL"):
            monkeypatch.delenv(name, raising=False)

    def swap(self, text: str) -> str:
        for name, other in self.swapped.items():
            text = text.replace(name, other)
        return text

    def run(self, name: str) -> None:
        block = BLOCKS[name]
        if block.language == "python":
            exec(compile(self.swap(block.code), name, "exec"), self.names)
            return
        assert block.language == "bash"
        ran = [self.command(line) for line in lines_of(block) if not is_marked(line)]
        assert ran, f"{name}: nothing was run"

    def command(self, line: str) -> None:
        words = shlex.split(self.swap(line), comments=True)
        if ">" in words:
            words = words[: words.index(">")]
        with pytest.MonkeyPatch.context() as patch:
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                patch.setenv(*words.pop(0).split("=", 1))
            program, *arguments = words
            if program == "medteb":
                from medteb_mteb.cli import app
            else:
                assert program == "mar", line
                from mar_st.cli import app
            code = app(arguments, standalone_mode=False)
            # A set of a dozen queries does not pass validation.
            assert not code or arguments[0] == "validate", f"{line}: exit code {code}"

    def rows(self, name: str, rows: list[dict]) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    def text(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


ASKED = ("不能吃什么", "怎么治疗", "会传染吗", "能喝酒吗")
ANSWERS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。", "是常见病。")


def texts_of(endings: tuple[str, ...], letter: str) -> list[dict]:
    return [
        {"_id": f"{letter}{number}-{place}", "text": disease + ending}
        for number, disease in enumerate(DISEASES)
        for place, ending in enumerate(endings)
    ]


SEARCH = [
    *(f"how-to/encode.md:{number}" for number in (0, 1, 2, 4)),
    *(f"how-to/search.md:{number}" for number in (0, 1, 2, 3, 6, 8)),
    *(f"how-to/serve.md:{number}" for number in (4, 7, 15)),
    *(f"how-to/lookup.md:{number}" for number in (1, 2, 4)),
    *(f"concepts/durability.md:{number}" for number in (0,)),
    "concepts/mar.md:0",
    "how-to/export.md:1",
    *(f"how-to/align-to-an-existing-index.md:{number}" for number in (1, 7, 9)),
    "how-to/train-on-your-data.md:4",
    "how-to/train-on-your-data.md:5",
    "README.md:6",
    "README.md:8",
]


@pytest.fixture
def searching(tmp_path, monkeypatch):
    """A corpus, queries, and saved models under the names of the docs."""
    world = World(
        tmp_path, monkeypatch, **{"mar-zh": "mar", 'create(model="mar-mini"': 'create(model="encoder"'}
    )
    departments = ("神经内科", "急诊科")
    documents = [
        {"_id": f"d{number:05d}", "title": row["text"][:4], "text": row["text"]}
        | {"department": departments[number % 2], "year": 2018 + number % 5}
        for number, row in enumerate(texts_of(ANSWERS, "d"))
    ]
    queries = texts_of(ASKED, "q")
    for folder in ("tasks/MedTEBRetrieval", "models/mar-zh/src/mar_zh/sample"):
        folder = folder.replace("mar-zh", "mar")
        world.rows(f"{folder}/corpus.jsonl", documents)
        world.rows(f"{folder}/queries.jsonl", queries)
        qrels = [f"{row['_id']}\td{number // 4 * 4:05d}\t1" for number, row in enumerate(queries)]
        world.text(f"{folder}/qrels/test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *qrels]) + "\n")
    world.rows("corpus.jsonl", documents)
    world.rows("queries.jsonl", queries)
    for name, first in (("new", "n"), ("changed", "d")):
        world.rows(
            f"{name}.jsonl",
            [{"_id": f"{first}{place:05d}", "text": text} for place, text in enumerate(ASKED)],
        )
        encode_corpus("mar-mini", f"{name}.jsonl", f"{name}-vectors")
    for name in ("mar", "model", "small", "tiny", "exported", "encoder", "runs/my-mar/model"):
        shutil.copytree(packaged_folder(), tmp_path / name)
    encode_corpus("mar-mini", "corpus.jsonl", "models/mar/src/mar_zh/sample/vectors")
    for name in ("query-4", "query-lookup"):
        add_query_encoder("mar", "model", name)
    shutil.copytree(tmp_path / "mar", tmp_path / "ladder")
    world.names |= {
        "questions": [row["text"] for row in queries],
        "texts": [row["text"] for row in documents],
    }
    return world


#: Folders that a block writes with other settings than blocks before it.
FRESH = {
    "how-to/encode.md:4": ("vectors",),
    "how-to/search.md:0": ("vectors",),
    "how-to/search.md:3": ("index",),
    "how-to/serve.md:5": ("index",),
    "how-to/lookup.md:4": ("vectors",),
    "how-to/train-on-your-data.md:4": ("vectors", "index"),
    "README.md:8": ("vectors", "index"),
}


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_the_pages_on_search_run(searching, tmp_path):
    for name in SEARCH:
        for folder in FRESH.get(name, ()):
            shutil.rmtree(tmp_path / folder)
        searching.run(name)
    assert searching.names["best"].indices.shape == (1, 10)


ANONYMISING = [f"how-to/anonymize.md:{number}" for number in (0, 2, 3, 4, 5, 6, 8, 9, 10)]


def test_the_page_on_anonymising_runs(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    rows = [
        {"_id": "1", "text": "患者王秀兰，电话13800138000", "科室": "内科"},
        {"_id": "2", "text": "头晕怎么办"},
    ]
    world.rows("questions.jsonl", rows)
    world.text("questions.csv", "_id,问题\n1,患者王秀兰，电话13800138000\n2,头晕怎么办\n")
    world.text("staff-and-patients.txt", "王秀兰\n")
    world.text("own-sentences.txt", "患者[[NAME:王秀兰]]，电话[[PHONE:13800138000]]\n")
    for name in ANONYMISING:
        shutil.rmtree(tmp_path / "build", ignore_errors=True)
        world.run(name)
