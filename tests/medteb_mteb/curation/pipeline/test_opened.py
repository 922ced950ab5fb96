"""An opened pipeline file: its folders, and the digests of what its steps depend on."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.opened import Build, until_step
from medteb_mteb.curation.pipeline.state import State, StepRecord

DEDUP = {"step": "dedup", "in": "documents.jsonl"}
AGAIN = {"step": "dedup", "name": "again", "in": "dedup"}
POOL = {"step": "pool", "queries": "queries.jsonl", "documents": "dedup", "retrievers": ["bm25"]}


def test_places_are_beside_the_file(write, tmp_path):
    build = Build.open(write(steps=[DEDUP], out="made/here", journal="j.sqlite", answers="/tmp/a.sqlite"))
    assert build.root == tmp_path / "made" / "here"
    assert build.folder(build.pipeline.steps[0]) == build.root / "dedup"
    assert (build.journal, str(build.answers)) == (tmp_path / "j.sqlite", "/tmp/a.sqlite")
    assert not build.root.exists()


@pytest.mark.parametrize("key", ["out", "journal", "answers", "store"])
@pytest.mark.parametrize("path", ["~no-such-user/a", "a\0b"])
def test_a_place_that_is_no_path_is_refused_before_the_first_step(write, key, path):
    with pytest.raises(BuildError, match="is not a path"):
        Build.open(write(steps=[DEDUP], **{key: path}))


def test_a_fingerprint_follows_raw_texts_and_the_output_of_earlier_steps(write, tmp_path):
    path, state = write(steps=[DEDUP, AGAIN, POOL]), State(tmp_path)

    def all_of(build, digest):
        state.records["dedup"] = StepRecord("dedup", "f", True, digest)
        return [build.fingerprint(step, state) for step in build.pipeline.steps]

    build = Build.open(path)
    before, other = all_of(build, "1"), all_of(build, "2")
    assert [one == same for one, same in zip(before, other, strict=True)] == [True, False, False]
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    assert all_of(build, "1") == before  # read once for each build
    after = all_of(Build.open(path), "1")
    assert [one == same for one, same in zip(before, after, strict=True)] == [True, True, False]


def test_a_run_file_is_identified_by_its_content_and_bm25_by_its_name(write, tmp_path):
    build, state = Build.open(write(steps=[DEDUP, POOL])), State(tmp_path)
    state.records["dedup"] = StepRecord("dedup", "f", True, "1")

    def of(place):
        build.models["pool"] = {"run": str(place)}
        return build.fingerprint(build.pipeline.steps[1], state)

    (tmp_path / "a.trec").write_text("1")
    (tmp_path / "b.trec").write_text("1")
    before = of(tmp_path / "a.trec")
    assert of(tmp_path / "b.trec") == before
    (tmp_path / "a.trec").write_text("2")
    assert len({before, of(tmp_path / "a.trec"), of("bm25"), of("bm25:jieba"), of("org/model")}) == 5


def test_a_step_has_made_something_once_it_is_finished_or_can_resume(write, tmp_path):
    build = Build.open(write(steps=[DEDUP, {"step": "consensus", "in": "documents.jsonl"}]))
    resumable, atomic = build.pipeline.steps
    finished, begun = StepRecord("s", "f", True), StepRecord("s", "f")
    assert not build.has_made(resumable, finished)
    for step in (resumable, atomic):
        build.folder(step).mkdir(parents=True)
    assert build.has_made(resumable, begun)
    assert build.has_made(atomic, finished)
    assert atomic.ATOMIC
    assert not build.has_made(atomic, begun)


def test_steps_up_to_one_include_it(write):
    pipeline = Build.open(write(steps=[DEDUP, AGAIN, POOL])).pipeline
    names = [[step.name for step in until_step(pipeline, until)] for until in ("dedup", "again", None)]
    assert names == [["dedup"], ["dedup", "again"], ["dedup", "again", "pool"]]
    for unknown in ("", "Dedup", "documents"):
        with pytest.raises(BuildError, match=rf"no step '{unknown}'\. Its steps are dedup, again, pool"):
            until_step(pipeline, unknown)
