from __future__ import annotations

import json


def test_a_saved_result_is_shown_though_its_data_cannot_be_read_again(
    medteb, data_root, tmp_path, monkeypatch
):
    from medteb_mteb.tasks.retrieval import MedTEBRetrieval

    def unreadable(self, *args, **kwargs):
        raise OSError("offline")

    args = (
        "run", "-t", "MedTEBRetrieval", "-m", "bm25-char-bigram", "-q", "--json",
        "--output-folder", tmp_path / "out",
    )  # fmt: skip
    code, out, err = medteb(*args)
    assert code == 0, err
    first = json.loads(out)["rows"][0]["scores"]["MedTEBRetrieval"]
    monkeypatch.setattr(MedTEBRetrieval, "load_data", unreadable)
    code, out, err = medteb(*args)
    assert code == 0, err
    again = json.loads(out)["rows"][0]["scores"]["MedTEBRetrieval"]
    assert again["score"] == first["score"]
    assert again["holes"]["note"] == "not known: the data of the saved result cannot be read"
