from __future__ import annotations

import json
import sys

from benchmarks import query_agreement
from mar_st import MAR


def test_a_copied_encoder_agrees_with_its_original(tmp_path, monkeypatch, capsys):
    texts = [f"{word}{asked}" for word in ("肺炎", "感冒", "痛风") for asked in ("怎么治", "吃什么好")]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in [*texts, *texts]))
    MAR.from_pretrained("mar-mini", device="cpu").save_pretrained(str(tmp_path / "model"))
    file = str(tmp_path / "texts.jsonl")
    arguments = ["--teacher", "mar-mini", "--model", str(tmp_path / "model"), "--texts", file]
    monkeypatch.setattr(sys, "argv", ["query_agreement.py", *arguments])
    query_agreement.main()
    row = json.loads(capsys.readouterr().out)
    assert row["cosine"] == {file: 1.0}
    assert query_agreement.sample(tmp_path / "texts.jsonl", 100, 0) == sorted(texts)
    drawn = query_agreement.sample(tmp_path / "texts.jsonl", 4, 0)
    assert len(set(drawn)) == 4
    assert drawn == query_agreement.sample(tmp_path / "texts.jsonl", 4, 0)
