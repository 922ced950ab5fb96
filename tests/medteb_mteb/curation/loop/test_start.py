"""What a month starts from: all that earlier months left, and nothing of later ones."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.curation.diseases import DISEASES
from tests.medteb_mteb.curation.loop.conftest import add_slice, texts_of, write_rows

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.loop.start import START
from medteb_mteb.curation.texts.near_duplicates import DEDUP


@pytest.fixture
def begin(tmp_path, run_step):
    """Starts a month with some documents, and finishes its steps that later months read."""

    def call(month, documents):
        new = write_rows(tmp_path / "new" / f"{month}.jsonl", documents)
        places = {name: tmp_path / name for name in ("months", "live", "releases")}
        counts = run_step(
            START, f"months/{month}/start", month=month, documents=new, first="mar-mini", **places
        )
        out = tmp_path / "months" / month
        run_step(DEDUP, f"months/{month}/documents", source=out / "start" / "documents")
        return out / "start", counts["details"]

    return call


def test_a_month_has_the_documents_and_slices_of_those_before_it(begin, tmp_path):
    first, details = begin("2026-10", {"a": "感冒要多喝水", "b": "高血压要少吃盐"})
    assert (details["served"], details["known documents"], details["earlier slices"]) == ("mar-mini", 0, 0)
    assert list(read_texts(first / "tests")) == []
    add_slice(tmp_path, "2026-10", DISEASES[:3])
    second, details = begin("2026-11", {"b": "高血压要少吃盐和少喝酒", "c": "胃炎要少吃辣"})
    assert details["known documents"] == 2
    texts = {text.id: text.text for text in read_texts(second / "documents")}
    assert texts == {"a": "感冒要多喝水", "b": "高血压要少吃盐和少喝酒", "c": "胃炎要少吃辣"}
    tested = {text.text for text in read_texts(second / "tests")}
    assert tested == set(texts_of(DISEASES[:3], ("不能吃什么", "怎么治疗", "会传染吗"), "q").values())


def test_a_month_that_is_repeated_starts_from_the_same_model(begin, tmp_path):
    releases = tmp_path / "releases"
    for name in ("2026-10-2", "2026-11-1"):
        (tmp_path / "made" / name / "model").mkdir(parents=True)
        releases.mkdir(exist_ok=True)
        (releases / name).symlink_to(tmp_path / "made" / name)
    (releases / "current").symlink_to("2026-10-2")
    out, details = begin("2026-11", {"a": "感冒要多喝水"})
    assert details["served"] == "2026-10-2"
    (releases / "current").unlink()
    (releases / "current").symlink_to("2026-11-1")
    # Even if it begins again, with other documents, after its release.
    out, details = begin("2026-11", {"a": "感冒要多休息"})
    assert details["served"] == "2026-10-2"
    assert (out / "model").resolve() == tmp_path / "made" / "2026-10-2" / "model"
