from __future__ import annotations

import gzip
import json

import pytest

from medteb_mteb.nano.rankings import SUFFIX, KeptRankings, RankingsError, read_rankings, write_rankings

KEPT = KeptRankings("T", "m", "r1", {"q": ["a", "b"]}, {"q": ["x", "a"]})


def test_written_rankings_are_read_back(tmp_path):
    path = tmp_path / "deep" / f"T{SUFFIX}"
    write_rankings(path, KEPT)
    assert read_rankings(path) == KEPT
    assert read_rankings(path).scores() == KEPT.scores()
    before = path.read_bytes()
    write_rankings(path, KEPT)
    assert path.read_bytes() == before


def test_other_files_are_refused(tmp_path):
    written = tmp_path / f"T{SUFFIX}"
    write_rankings(written, KEPT)
    for content in (b"", b"{}", b"\x1f\x8b broken"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(RankingsError, match="expected rankings kept by `medteb run`"):
            read_rankings(tmp_path / "file")
    for damage in ({"qrels": None}, {"rankings": {"q": "x"}}, {"task": None}):
        content = {"form": json.loads(gzip.decompress(written.read_bytes()))["form"]} | damage
        (tmp_path / "file").write_bytes(gzip.compress(json.dumps(content).encode()))
        with pytest.raises(RankingsError, match=r"damaged rankings; .* is missing or of another type"):
            read_rankings(tmp_path / "file")
    with pytest.raises(RankingsError, match="absent"):
        read_rankings(tmp_path / "absent")
