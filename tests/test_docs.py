"""The commands of README and tutorial run as they are typed, and every option that the docs name exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.conftest import write_retrieval

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page: Path) -> list[str]:
    """The lines of a page's bash blocks, continued lines joined, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def options() -> dict[str, set[str]]:
    """Names of all options, by program and command."""
    from mar_st.cli import app as mar
    from medteb_mteb.cli import app as medteb

    found: dict[str, set[str]] = {}

    def walk(command, path):
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, f"{path} {name}")
        else:
            names = {one for param in command.params for one in (*param.opts, *param.secondary_opts)}
            found[path] = names | {"--help"}

    for name, app in (("mar", mar), ("medteb", medteb)):
        walk(typer.main.get_command(app), name)
    return found


def test_documented_commands_and_options_exist():
    known = options()
    wrong = []
    for page in PAGES:
        for line in commands(page):
            program = re.match(r"(?:\w+=\S+ )*(?:\.venv/bin/)?((?:mar|medteb) [a-z-]+(?: [a-z-]+)?)", line)
            if program is None:
                continue
            path = program[1] if program[1] in known else " ".join(program[1].split()[:2])
            given = re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", line.partition(program[1])[2])
            wrong += [f"{page.name}: {line}"] * (path not in known)
            wrong += [
                f"{page.name}: {path} has no {one}" for one in given if one not in known.get(path, {one})
            ]
    assert wrong == []


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with what the pages take for granted."""
    for name in ("examples", "models/mar-zh/src/mar_zh/sample"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    write_retrieval(tmp_path / "my-clinic-faq")
    shutil.copy(tmp_path / "my-clinic-faq" / "corpus.jsonl", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "page", ["README.md", "docs/build.md", "docs/leaderboard.md", "docs/loop.md", "docs/answers.md"]
)
def test_the_page_runs_as_typed(page: str, workplace: Path):
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, content in re.findall(r"`(\w+\.yaml)`[^`]*:\n\n```yaml\n(.*?)```", text, re.S):
        (workplace / name).write_text(content, encoding="utf-8")
    for name, model in (("sorter", "rule-sorter"), ("asker", "rule-questions")):
        llm = f'{{name: {name}, model: {model}, base_url: "http://127.0.0.1:8900/v1"}}'
        (workplace / f"{name}.yaml").write_text(llm, encoding="utf-8")
    server = subprocess.Popen(
        [sys.executable, "examples/rule_judges.py", "--port", "8900"], cwd=workplace, stdout=subprocess.PIPE
    )
    try:
        server.stdout.readline()
        for line in commands(ROOT / page):
            skipped = re.search(r"\bserve\b|Qwen|BAAI|bge-|mar train|pip|&$", line)
            if re.match(r"([A-Z_]+=\S+ )?(mar|medteb|mteb|python|cp|for) ", line) and not skipped:
                done = subprocess.run(
                    line, shell=True, cwd=workplace, env=environment, capture_output=True, text=True
                )
                expected = (0, 1) if re.search("validate|submit|fail-if|loop.yaml", line) else (0,)
                assert done.returncode in expected, (line, done.stdout, done.stderr)
    finally:
        server.kill()
        server.wait()


def test_every_link_leads_somewhere():
    wrong = []
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            made = re.search(r"commands-|recipe-fields|task-cards|changelog", target)
            if not made and not (page.parent / target).exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert wrong == []
