"""The example of the how-to page runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from llm_server import serving

from medteb_mteb.curation.llm import load_llm

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "answers.md"


def test_the_example_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    page = PAGE.read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEDTEB_ANSWERS", raising=False)
    file = tmp_path / "llm.yaml"
    file.write_text(settings, encoding="utf-8")
    assert load_llm(file).budget == 50
    with serving(lambda messages: '{"title": "饮食"}') as url:
        entry = yaml.safe_load(settings)["llm"] | {"base_url": url}
        del entry["api_key_env"]
        file.write_text(yaml.safe_dump({"llm": entry}), encoding="utf-8")
        for _ in range(2):
            exec(compile(code, str(PAGE), "exec"), {})
    out = capsys.readouterr().out
    assert "requests=2" in out
    assert "requests=0" in out
    assert out.count("{'d1': '饮食', 'd2': '饮食'} {}") == 2
    assert (tmp_path / "answers.sqlite").is_file()
