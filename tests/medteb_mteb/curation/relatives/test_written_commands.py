"""Commands that build tasks whose texts an LLM writes, with a server on loopback in its place."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys

import pytest
import yaml
from tests.medteb_mteb.curation.relatives.written_texts import BIORXIV, DISEASES, PUBMED, write

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm import LLM
from medteb_mteb.curation.relatives import WriterSettings

pytestmark = pytest.mark.skipif(importlib.util.find_spec("openai") is None, reason="asks through openai")


@pytest.fixture(autouse=True)
def _no_journal_of_the_environment(monkeypatch):
    monkeypatch.delenv("MEDTEB_ANSWERS", raising=False)


@pytest.mark.thorough
def test_a_killed_command_continues_without_paying_twice(sources, tmp_path, endpoint):
    process: list[subprocess.Popen] = []

    def arrived(number):
        if number == 12:
            process[0].kill()

    server, llm = endpoint(
        write, on_arrival=lambda number: arrived(number) if process else None, latency=0.05
    )
    file = tmp_path / "llm.yaml"
    content = llm.model_copy(update={"concurrency": 2}).model_dump(mode="json")
    file.write_text(yaml.safe_dump({"llm": content}), encoding="utf-8")
    command = ["build", "relatives", PUBMED, sources / "pubmed", tmp_path / "data", "--llm", file, "-q"]
    program = [sys.executable, "-m", "medteb_mteb.cli", *map(str, command)]
    process.append(subprocess.Popen(program))
    assert process[0].wait(120) == -9
    process.clear()
    assert not (tmp_path / "data" / "MedTEB-eng").exists()
    done = subprocess.run([*program, "--json"], capture_output=True, text=True, timeout=120, check=True)
    report = json.loads(done.stdout)
    assert report["rows"] == 30
    assert report["known"] >= 5
    assert report["known"] + report["bought"] == 30
    # An answer under way when it was killed is given again under the same idempotency key, not sold again.
    assert server.made == 30
    assert not any(count > 1 for count in server.sold.values())


def test_commands_estimate_build_and_score(sources, tmp_path, endpoint, medteb, monkeypatch):
    server, llm = endpoint(write)
    file = tmp_path / "llm.yaml"
    content = llm.model_dump(mode="json") | {"price_in": 2.5, "price_out": 10}
    file.write_text(yaml.safe_dump({"llm": content}), encoding="utf-8")
    command = ("build", "relatives", BIORXIV, sources / "biorxiv", tmp_path / "data", "--llm", file, "-q")
    code, out, err = medteb(*command, "--dry-run")
    assert (code, err, server.made) == (0, "", 0)
    assert out.startswith("7 prompts, 0 in the journal, 0 failed before; 7 requests")
    assert not (tmp_path / "data").exists()
    code, out, err = medteb(*command)
    assert (code, err, server.made) == (0, "", 7)
    assert "7 rows" in out
    assert "7 new answers, 0 from the journal" in out
    assert (tmp_path / "data" / "answers.sqlite").is_file()
    code, out, _ = medteb(*command, "--json")
    report = json.loads(out)
    assert (report["built_before"], report["bought"], report["known"], server.made) == (True, 0, 7, 7)
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    code, out, _ = medteb(
        "run", "-t", BIORXIV, "-m", "bm25-english", "-q", "--json", "--output-folder", tmp_path / "results"
    )
    assert code == 0
    assert json.loads(out)["rows"][0]["scores"][BIORXIV]["score"] > 0


def test_a_stopped_command_says_so(sources, tmp_path, endpoint, medteb):
    _, llm = endpoint(write)
    file = tmp_path / "llm.yaml"
    content = llm.model_dump(mode="json") | {"budget_tokens": 1500, "concurrency": 1}
    file.write_text(yaml.safe_dump({"llm": content}), encoding="utf-8")
    command = ("build", "relatives", BIORXIV, sources / "biorxiv", tmp_path / "data", "--llm", file, "-q")
    code, _, err = medteb(*command)
    assert code == 1
    assert re.search(r"stopped: .*1500 tokens are spent\. Run the same command again to resume", err)


def test_a_damaged_journal_is_repaired_by_the_same_command(sources, tmp_path, endpoint, medteb):
    server, llm = endpoint(write, idempotent=False)
    file = tmp_path / "llm.yaml"
    file.write_text(yaml.safe_dump({"llm": llm.model_dump(mode="json")}), encoding="utf-8")
    command = ("build", "relatives", BIORXIV, sources / "biorxiv", tmp_path / "data", "--llm", file, "-q")
    assert medteb(*command)[0] == 0
    with (tmp_path / "data" / "answers.sqlite").open("r+b") as stream:
        stream.seek(100)
        stream.write(b"\xff" * 200)
    code, _, err = medteb(*command)
    assert code == 2
    assert "--repair" in err
    code, out, err = medteb(*command, "--repair")
    assert code == 0
    assert "7 answers kept" in err
    assert "0 new answers, 7 from the journal" in out
    assert "(built before)" in out
    assert server.made == 7


def test_options_that_do_not_fit_are_one_clear_error(sources, tmp_path, medteb):
    file = tmp_path / "llm.yaml"
    file.write_text("llm: {name: w, model: w, base_url: 'http://127.0.0.1:9/v1'}\n", encoding="utf-8")
    task = "retrieval_clinical_trials_officialTitle_vsprimaryOutcomes"
    code, _, err = medteb("build", "relatives", task, sources / "pubmed", tmp_path / "d", "--llm", file)
    assert code == 2
    assert f"No LLM writes texts of {task}; build it without --llm" in err
    code, _, err = medteb("build", "relatives", PUBMED, sources / "pubmed", tmp_path / "d", "--most", "3")
    assert (code, err) == (
        2, "medteb: error: --most is of no use without --llm FILE, the YAML file of an LLM\n"
    )  # fmt: skip
    code, _, err = medteb("build", "relatives", DISEASES, sources / "wikipedia", tmp_path / "d")
    assert code == 2
    assert "give --llm FILE" in err
    with pytest.raises(BuildError, match="At least two texts must be written about; got 1"):
        WriterSettings(LLM(name="w", model="w", base_url="http://127.0.0.1:9/v1"), tmp_path / "j", 1)
