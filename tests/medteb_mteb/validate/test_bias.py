from __future__ import annotations

import json

import numpy as np
import pytest

from medteb_mteb.validate.bias import length_bias, position_bias

QUERIES, SHOWN = 12, 12


@pytest.fixture
def judged(tmp_path):
    """A judging with places: `judged(name=grade_of(place, passage, relevant))` for 12 x 36 passages."""

    def write(**judges):
        folder = tmp_path / "judged"
        folder.mkdir()
        draw = np.random.default_rng(3)
        rows, places = [], []
        for judge, grade in judges.items():
            for query in range(QUERIES):
                # Every document of the folder may be judged for every query; only ids matter here.
                names = [f"{kind}{i}" for i in range(12) for kind in "pnu"]
                order = draw.permutation(len(names))
                for count, which in enumerate(order):
                    place = count % SHOWN + 1
                    relevant = (which * 7 + query) % 5 == 0
                    key = {"query-id": f"q{query}", "corpus-id": names[which], "judge": judge}
                    rows.append({**key, "grade": grade(place, names[which], relevant, draw)})
                    places.append({**key, "place": place, "of": SHOWN})
        for name, content in (("judgements", rows), ("places", places)):
            lines = [json.dumps(row) for row in content]
            (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder

    return write


def honest(place, passage, relevant, draw):
    return "S" if relevant else "D"


def lazy(place, passage, relevant, draw):
    """Prefers the passages that come first."""
    return "A" if place <= 3 else honest(place, passage, relevant, draw)


def test_a_judge_that_prefers_first_passages_fails(look, judged):
    finding = look(position_bias, judgements=judged(lazy=lazy, honest=honest))
    assert finding.verdict == "fail"
    assert "of lazy with the place is -0." in finding.reason
    assert finding.numbers["lazy, first quarter, share of positives"] == 1.0
    assert finding.numbers["lazy, last quarter, share of positives"] < 0.5
    low, high = (
        finding.numbers[f"honest, rank correlation with the place, {end}"] for end in ("low", "high")
    )
    assert low < 0 < high
    assert [row[0] for row in finding.table.rows] == ["honest", "lazy"]


def test_the_file_of_judgements_has_its_places_beside_it(look, judged):
    folder = judged(lazy=lazy)
    by_file = look(position_bias, judgements=folder / "judgements.jsonl")
    assert by_file == look(position_bias, judgements=folder)
    (folder / "places.jsonl").unlink()
    assert look(position_bias, judgements=folder).verdict == "not known"


def test_position_bias_is_not_known_without_places_or_judgements(look, write_judgements):
    assert look(position_bias).verdict == look(length_bias).verdict == "not known"
    finding = look(position_bias, judgements=write_judgements("other", one={"q0 p0": "S", "q1 n1": "D"}))
    assert (finding.verdict, "no places" in finding.reason) == ("not known", True)


def test_a_judge_that_prefers_long_passages_differs_from_the_others(look, judged):
    def verbose(place, passage, relevant, draw):
        return "S" if passage.startswith("p") else honest(place, passage, relevant, draw)  # the longest ones

    finding = look(length_bias, judgements=judged(verbose=verbose, honest=honest, careful=honest))
    assert finding.verdict == "warning"
    assert "of verbose differs" in finding.reason
    assert finding.numbers["verbose, longest quarter, mean grade"] > 3
    assert finding.numbers["verbose, rank correlation beyond the others, low"] > 0.2
    row = next(row for row in finding.table.rows if row[0] == "verbose")
    assert row[-1].startswith("+0.")


def test_judges_that_grade_alike_have_the_same_length_bias(look, judged):
    finding = look(length_bias, judgements=judged(one=honest, two=honest))
    assert finding.verdict == "ok"
    assert finding.numbers["one, rank correlation beyond the others"] == 0.0
    alone = finding.numbers["one, rank correlation with the length"]
    assert alone is not None


def test_one_judge_cannot_be_compared(look, write_judgements):
    grades = {f"q{i} {kind}{i}": grade for i in range(9) for kind, grade in (("p", "S"), ("n", "D"))}
    finding = look(length_bias, judgements=write_judgements("one", one=grades))
    assert (finding.verdict, "no two judges" in finding.reason) == ("not known", True)
    assert finding.table.rows[0][0] == "one"
