"""Hard negatives that the encoder of a stage mines before its first step (`mine` in a recipe)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mar_st.files import write_json
from mar_st.mining import Dense, MiningError, Rules, mine
from mar_st.planning.launch import Launch
from mar_st.stages.teaching import teacher_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from mar_st.data import Source
    from mar_st.mining import Mined
    from mar_st.recipes.schema import ContrastiveStage
    from mar_st.stages.settings import StageSettings

__all__ = ["MINING_FILE", "forget_work", "mined_sources", "rules_of"]

#: Counts of the mining, in the stage's folder.
MINING_FILE = "mining.json"


def mined_sources(
    model: SentenceTransformer,
    sources: Sequence[Source],
    stage: ContrastiveStage,
    settings: StageSettings,
    say: Callable[[str], None],
) -> list[Source]:
    """Return data entries with hard negatives, which the model finds among the documents of each entry.

    Negatives of the data are kept beside the mined ones, as in `mar mine`. A query for which no candidate is
    left takes the documents of its batch. Vectors are kept in the teacher store and finished
    queries in the stage's folder, so a killed run resumes. With several processes each mines all queries,
    with vectors that they encode together.

    Args:
        model: The symmetric model that the stage will train.
        sources: Data entries of the stage.
        stage: The stage; `mine` is given.
        settings: Settings of the run.
        say: Receives a line per data entry: how many queries have a hard negative.

    Raises:
        MiningError: A data entry does not consist of triples, or the settings are impossible.
    """
    model.eval()
    mined = []
    for source in sources:
        if source.form != "triples":
            raise MiningError(
                f"stage {stage.name}: 'mine' needs triples; the data {source.entry.name!r} are "
                f"{source.form}. Leave this entry to another stage."
            )
        result = _mine(model, source, stage, settings)
        report = {"counts": result.counts, "candidates": result.candidates, "scores": result.scores}
        folder = _work(settings, source.entry.name)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / MINING_FILE, report)
        queries, without = (result.counts[name] for name in ("queries", "queries without a mined negative"))
        say(
            f"stage {stage.name}: hard negatives from {source.entry.name} for {queries - without:,} of "
            f"{queries:,} queries; {result.counts['random negatives']:,} random ones"
        )
        # Small or strictly filtered data leave queries without a negative; `mining.json` counts them.
        missing = "batch" if result.counts["triples without a negative"] else source.entry.missing_negatives
        entry = source.entry.model_copy(update={"missing_negatives": missing})
        mined.append(replace(source, entry=entry, triples=result.triples))
    return mined


def forget_work(settings: StageSettings) -> None:
    """Delete the finished queries of a stage that is trained; the counts stay."""
    for blocks in (settings.folder / "mining").glob("*/blocks"):
        shutil.rmtree(blocks, ignore_errors=True)


def _mine(
    model: SentenceTransformer, source: Source, stage: ContrastiveStage, settings: StageSettings
) -> Mined:
    entry = source.entry
    asked = teacher_vectors(model, settings.teacher_store(), entry, autocast=settings.precision == "bf16")
    work = _work(settings, entry.name)
    return mine(
        [Dense.of_teacher(asked.teacher, symmetric=entry.symmetric)],
        source.triples,
        rules=rules_of(stage, settings.seed),
        symmetric=entry.symmetric,
        instructed=True,
        work=work / "blocks" if Launch.here().world == 1 else None,
    )


def _work(settings: StageSettings, name: str) -> Path:
    return settings.folder / "mining" / name


def rules_of(stage: ContrastiveStage, seed: int) -> Rules:
    """Return the rules of a stage's mining, see `mar_st.mining.Rules`."""
    assert stage.mine is not None  # noqa: S101 -- the caller has checked
    options: dict[str, Any] = stage.mine.model_dump()
    return Rules(num_negatives=stage.negatives or 0, top=stage.mine.range_max, seed=seed, **options)
