"""The servers of examples/local_judge.md: their settings, and one that runs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import fault_server as faults
import pytest
import yaml

from medteb_mteb.curation.judge import Judges, judge
from medteb_mteb.curation.labels.consensus import consensus
from medteb_mteb.curation.labels.grades import read_judging

GUIDE = faults.ROOT / "examples" / "local_judge.md"


@pytest.fixture(scope="module")
def constant():
    return faults.load(faults.ROOT / "examples" / "constant_model.py")


def blocks():
    return re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_settings_are_those_of_judges():
    judges = [Judges.model_validate(yaml.safe_load(block)).judges[0] for block in blocks()]
    assert len(judges) == 5
    assert all(one.local and one.key() == "none" for one in judges)
    assert all(one.cost(10**6, 10**6) == 0 for one in judges)
    assert len({one.name for one in judges}) == len(judges)


def test_the_model_gives_the_scripted_answer(constant, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    constant.main([str(tmp_path / "model"), "--grade", "A"])
    words = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    for text in ("你好", "Passage-0: S", ""):
        prompt = words.apply_chat_template(
            [{"role": "user", "content": text}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        said = model.generate(**prompt)[0, prompt["input_ids"].shape[1] :]
        assert words.decode(said, skip_special_tokens=True) == '{"Passage-0": "A"}'


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.slow
def test_a_real_server_judges_from_end_to_end(constant, make_input, tmp_path):
    constant.main([str(tmp_path / "constant"), "--grade", "S"])
    port = free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(tmp_path / "constant")]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port), "--device", "cpu"],
            stdout=log,
            stderr=log,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.3)
        source = make_input(2, 3)
        settings = yaml.safe_load(blocks()[-1])
        settings["judges"][0] |= {
            "model": str(tmp_path / "constant"),
            "base_url": f"http://127.0.0.1:{port}/v1",
            "concurrency": 2,
        }
        config = Judges.model_validate(settings)
        report = judge(*source.paths, tmp_path / "out", config, already_anonymous=True, show_progress=False)
    finally:
        server.terminate()
        server.wait(20)
    (result,) = report.judges
    assert report.complete
    assert result.outcome.grades["S"] == source.pairs == 6
    # Pairs, and the three documents with a query that they cannot answer.
    assert result.account.answers == 6 + 3
    assert result.account.tokens_in > 6 * 500
    assert result.account.tokens_out == 2 * result.account.answers
    assert result.account.estimated == 0
    lines = (report.folder / "judgements.jsonl").read_text("utf-8").splitlines()
    assert all(json.loads(line)["why"] == ["raised"] for line in lines)
    assert not any(label.relevance for label in consensus(read_judging(report.folder).judgements))
