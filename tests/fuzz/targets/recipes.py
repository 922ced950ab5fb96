"""Recipes, studies, judges and pipelines, in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.recipes.load import RECIPES, load_recipe
from mar_st.study.schema import STUDIES, load_study
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.config import load_judges
from medteb_mteb.curation.pipeline.schema import load_pipeline
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path

_JUDGES = "judges:\n  - {name: a, model: m, base_url: 'http://127.0.0.1:1/v1', budget: 1.5}\nbatch: 5\n"
_PIPELINE = "steps:\n  - {step: dedup, name: d, source: documents.jsonl}\nseed: 1\n"


def prepare(place: Path) -> Target:
    """Set up the target: the first line says what the file is."""
    loaders = {
        "recipe": load_recipe, "study": load_study, "judges": load_judges, "pipeline": load_pipeline
    }  # fmt: skip

    def check(data: bytes) -> str:
        line, _, content = data.partition(b"\n")
        path = place / "x.yaml"
        path.write_bytes(content)
        load = loaders.get(line.decode("utf-8", "replace"))
        return "no kind" if load is None else type(load(path)).__name__

    files = [("recipe", path.read_bytes()) for path in sorted(RECIPES.glob("*.yaml"))[:6]]
    files += [("study", path.read_bytes()) for path in sorted(STUDIES.glob("*.yaml"))[:2]]
    files += [("judges", _JUDGES.encode()), ("pipeline", _PIPELINE.encode())]
    words = (
        b"&a ", b"*a", b"<<: *a", b"!!python/name:os.system", b"!!binary ", b"- ", b": ", b"\n  ", b"? ",
        b"---\n", b"2024-13-01", b".nan", b"0x1F", b"1_000", b"~", b"|\n", b">\n", b"'", b"extends: ",
    )  # fmt: skip
    seeds = [kind.encode() + b"\n" + content for kind, content in files]
    return Target(seeds, check, (MarError, BuildError), named=True, words=words)
