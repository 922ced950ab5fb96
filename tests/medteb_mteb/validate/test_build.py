from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.validate import Sources
from medteb_mteb.validate.build import of_build


@pytest.fixture
def build(tmp_path):
    for name, kind in (("my-pool", "pool"), ("graded", "judge"), ("clean", "dedup")):
        (tmp_path / "build" / name).mkdir(parents=True)
        (tmp_path / "build" / name / "step.json").write_text(json.dumps({"step": kind}))
    return tmp_path / "build"


def test_steps_are_found_by_their_kind(build):
    sources = of_build(build, Sources())
    assert (sources.pools, sources.judgements, sources.against) == (build / "my-pool", build / "graded", ())
    (build / "data" / "train").mkdir(parents=True)
    assert of_build(build, Sources()).against == ()
    (build / "data" / "train" / "triples.jsonl").write_text("{}")
    assert of_build(build, Sources()).against == [str(build / "data" / "train")]


def test_given_files_take_precedence(build, tmp_path):
    given = Sources(pools=tmp_path / "p", judgements=tmp_path / "j", against=["t"])
    assert of_build(build, given) == given


def test_other_folders_and_several_steps_are_refused(build, tmp_path):
    with pytest.raises(BuildError, match="holds no step of a build"):
        of_build(tmp_path / "gone", Sources())
    (build / "second").mkdir()
    (build / "second" / "step.json").write_text(json.dumps({"step": "pool"}))
    with pytest.raises(BuildError, match=r"my-pool, second\. Choose one by --pools"):
        of_build(build, Sources())
    assert of_build(build, Sources(pools=build / "second")).pools == build / "second"
    (build / "second" / "step.json").write_text("{")
    with pytest.raises(BuildError, match="cannot be read as JSON"):
        of_build(build, Sources())
