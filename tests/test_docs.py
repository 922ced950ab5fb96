"""Every `medteb` and `mar` command in the README and the docs parses, and the examples run."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from mar_st import MAR
from mar_st.model.names import packaged_folder
from medteb_mteb.curation.labels.intervals import smallest_difference

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def documented_commands() -> list[str]:
    commands = []
    for page in PAGES:
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if ">" in words:  # output into a file
                    words = words[: words.index(">")]
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words and words[0] in ("medteb", "mar"):
                    commands.append(shlex.join(words))
    return commands


@cache
def commands(program: str) -> Any:
    """All commands of a program, built once: that takes longer than parsing one."""
    if program == "medteb":
        from medteb_mteb.cli import app
    else:
        from mar_st.cli import app
    return typer.main.get_command(app)


@pytest.mark.parametrize("command", sorted(set(documented_commands())))
def test_documented_command_parses(command):
    program, *arguments = shlex.split(command)
    group = commands(program)
    context = group.make_context(program, arguments)
    while hasattr(group, "resolve_command"):
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, group, rest = group.resolve_command(context, rest)
        assert group is not None, f"{program} has no command {name!r}"
        context = group.make_context(name, rest, parent=context)


def test_the_table_of_test_sizes_has_the_differences_that_the_commands_print():
    page = (ROOT / "docs" / "how-to" / "assemble.md").read_text(encoding="utf-8")
    (sizes,) = re.findall(r"^\| test queries \| (.*) \|$", page, re.MULTILINE)
    (differences,) = re.findall(r"^\| smallest difference in nDCG@10 \| (.*) \|$", page, re.MULTILINE)
    numbers = [int(size.replace(",", "")) for size in sizes.split(" | ")]
    assert [f"{smallest_difference(number):.3f}" for number in numbers] == differences.split(" | ")


def test_there_are_documented_commands_of_both_programs():
    assert {command.split()[0] for command in documented_commands()} == {"medteb", "mar"}


def _main(name: str, *arguments: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(*arguments)


@pytest.mark.thorough
def test_the_langchain_example_quotes_the_passage_that_answers():
    prompt = _main("langchain_retriever")
    assert "[1] 胃镜检查前的准备" in prompt
    assert prompt.endswith("问题：做胃镜前能喝水吗")


@pytest.mark.thorough
def test_the_llamaindex_example_finds_the_passage_that_answers():
    (best, score), (_, second) = _main("llamaindex_retriever")
    assert best == "胃镜检查前的准备"
    assert score > second


def test_the_milvus_example_finds_by_meaning_and_department(tmp_path):
    assert _main("milvus_vectors", str(tmp_path / "milvus.db"))[0] == "高血压的饮食"


@pytest.mark.slow
def test_the_example_of_a_million_passages_finds_the_answers(tmp_path):
    lines = (ROOT / "tasks" / "MedTEBRetrieval" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if "胃镜" in line or "高血压" in line][:60]
    (tmp_path / "corpus.jsonl").write_text("\n".join(dict.fromkeys(wanted + lines[:100])), encoding="utf-8")
    best = _main("million_passages", str(tmp_path / "corpus.jsonl"), str(tmp_path / "passages"))
    assert best == _main("million_passages", str(tmp_path / "corpus.jsonl"), str(tmp_path / "passages"))
    texts = {json.loads(line)["_id"]: line for line in lines}
    assert "高血压" in texts[best[0]]
    assert "胃镜" in texts[best[1]]


def test_the_how_to_on_training_mines_triples_and_loads_the_recipe(tmp_path, monkeypatch):
    """Its mining command and its recipe as they stand, on a few rows."""
    from mar_st.cli import app as mar
    from mar_st.data import read_source
    from mar_st.recipes.load import load_recipe

    page = (ROOT / "docs" / "how-to" / "train-on-your-data.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    rows = [
        {"query": f"{a}{b}怎么办", "positive": f"{a}{b}的处理：{b}{a}"}
        for a in "甲乙丙丁"
        for b in "头胸腹背"
    ]
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    (tmp_path / "texts.jsonl").write_text('{"text": "一段文字"}\n', encoding="utf-8")
    (command,) = re.findall(r"^mar (mine .*)$", page, re.MULTILINE)
    mar(shlex.split(command), standalone_mode=False)
    recipe, *_ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my-mar.yaml").write_text(recipe, encoding="utf-8")
    loaded = load_recipe(tmp_path / "my-mar.yaml")
    triples, texts = (read_source(entry, loaded.seed) for entry in loaded.data)
    assert len(triples.triples) == len(rows)
    assert all(len(t.negatives) == 4 and not set(t.negatives) & set(t.positives) for t in triples.triples)
    assert texts.texts == ["一段文字"]
    assert loaded.asymmetric


def test_the_search_example_finds_the_passages_that_answer():
    assert _main("search") == ["高血压的饮食", "胃镜检查前的准备", "头痛的就诊科室"]


def test_the_example_of_own_data_ranks_every_answer_first():
    assert _main("own_data") == 1.0


def test_product_docs_name_no_private_path():
    for page in PAGES:
        assert "shared/data" not in page.read_text(encoding="utf-8"), page


def blocks_of_other_libraries() -> list[str]:
    """Code that encodes a query and a document in this process, a block per library."""
    page = (ROOT / "docs" / "how-to" / "other-libraries.md").read_text(encoding="utf-8")
    section = page.partition("## In one process")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=block.split()[1]) for block in blocks_of_other_libraries()]
)
def test_other_libraries_encode_each_side_with_its_encoder(block):
    for package in re.findall(r"^from (\S+) import", block, re.MULTILINE):
        pytest.importorskip(package, exc_type=ImportError)
    model = MAR.from_pretrained("mar-mini", device="cpu")
    texts = {"query": "头疼吃什么药", "document": "布洛芬可以缓解头疼，饭后服用。"}
    namespace: dict[str, object] = {"folder": str(packaged_folder()), **texts}
    exec(block, namespace)
    assert namespace["query_vector"] == pytest.approx(model.encode_query([texts["query"]])[0], abs=1e-5)
    assert namespace["document_vector"] == pytest.approx(
        model.encode_document([texts["document"]])[0], abs=1e-5
    )
