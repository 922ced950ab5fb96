"""`medteb edition`."""

from __future__ import annotations

import json

from medteb_mteb.editions import load_edition
from medteb_mteb.folders.layout import inspect_folder


def test_editions_are_written_shown_and_verified(medteb, make_folder, monkeypatch):
    folder = make_folder("Retrieval", "data/Mine")
    card = "---\nmedteb: {ignore_identical_ids: false}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    code, out, err = medteb("edition", "write", folder, "--licence", "mit", "--edition", "own")
    assert code == 0, err
    edition = load_edition(folder)
    assert edition.digest[:12] in out
    assert inspect_folder(folder).edition == edition
    assert edition.counts == {"queries": 3, "corpus": 6, "qrels": 4}
    monkeypatch.setenv("MEDTEB_DATA", str(folder.parent))
    code, out, _ = medteb("edition", "show", "Mine")
    assert (code, edition.digest in out) == (0, True)
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"_id": "q4", "text": "问"}\n')
    code, _, err = medteb("edition", "show", "Mine")
    assert (code, "queries.jsonl" in err) == (2, True)
    code, _, err = medteb("edition", "write", folder, "--licence", "mit")
    assert (code, "q4" in err) == (2, True)
    assert load_edition(folder) == edition  # a refused write changes nothing


def test_an_edition_cannot_send_control_characters_to_the_terminal(medteb, make_folder):
    folder = make_folder("STS")
    medteb("edition", "write", folder, "--task", "Mine", "--licence", "mit\x1b[2J", "--edition", "n\x9b1m")
    code, said, _ = medteb("edition", "show", folder)
    assert code == 0
    assert not set(said) & set("\x1b\x9b")


def test_editions_are_compared_by_name_and_folder(medteb, data_root, make_folder):
    code, out, err = medteb("edition", "diff", "MedTEBRetrieval", data_root / "MedTEBRetrieval")
    assert (code, "no difference" in out) == (0, True), err
    other = make_folder("Retrieval", "other")
    (other / "qrels" / "test.tsv").write_text(
        (other / "qrels" / "test.tsv").read_text().replace("q2\td2\t2", "q2\td2\t1")
    )
    code, out, err = medteb("edition", "diff", "MedTEBRetrieval", other, "--json")
    assert code == 0, err
    labels = json.loads(out)["changes"]["labels"]
    assert (labels["changed"], labels["grades"]) == (["q2 d2"], [["2", "1", ["q2 d2"]]])
