"""The model card that a run writes beside its model."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import yaml

from mar_st.model.describe import count_parameters
from mar_st.modules.layout import loading_call
from mar_st.stages.monitor import METRICS_FILE, evaluation_results, read_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.recipes.schema import Recipe


#: Libraries whose versions a card names.
LIBRARIES = (
    "medteb", "sentence-transformers", "transformers", "torch", "datasets", "accelerate", "peft"
)  # fmt: skip


def write_card(
    folder: Path,
    recipe: Recipe,
    data_digests: Sequence[str],
    stages: Mapping[str, Path] | None = None,
) -> None:
    """Write `README.md` into a model folder: description, training, data and results.

    Args:
        folder: The model folder.
        recipe: The recipe it was trained with.
        data_digests: `data_digest` of every data source, in the recipe's order.
        stages: Training folder of each stage, by stage name; its `metrics.jsonl` has the results. Stages
            without a folder are left out of the results.
    """
    kind = "asymmetric" if recipe.asymmetric else "symmetric"
    parameters = count_parameters(folder)
    known = {
        "license": recipe.licence,
        "language": list(recipe.languages),
        "release_date": recipe.released and recipe.released.isoformat(),
    }
    header = {
        **{key: value for key, value in known.items() if value},
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["mar", kind],
        "n_parameters": parameters,
        "training_code": f"mar train {recipe.name}",
    }
    content = recipe.model_dump(mode="json", exclude_defaults=True)
    data = "\n".join(
        f"| {source.name} | `{source.path}` | `{digest}` |"
        for source, digest in zip(recipe.data, data_digests, strict=True)
    )
    usage = (
        ["vectors = model.encode(texts)"]
        if not recipe.asymmetric
        else ["queries = model.encode_query(texts)", "documents = model.encode_document(texts)"]
    )
    lines = [
        "---",
        yaml.safe_dump(header, sort_keys=False).strip(),
        "---",
        "",
        f"# {recipe.name}",
        "",
        f"{recipe.description[0].upper()}{recipe.description[1:]}.",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        f"model = {loading_call(recipe.name, folder)}  # the folder",
        *usage,
        "```",
        "",
        f"Parameters: {parameters:,}. Seed {recipe.seed}. Weights are stored as "
        f"{recipe.storage_dtype or 'trained'} and computed as the configuration says.",
        "",
        "## Data",
        "",
        "| name | source | sha256 |",
        "|---|---|---|",
        data,
        "",
        *_results(recipe, stages or {}),
        "## Recipe",
        "",
        "```yaml",
        yaml.safe_dump(content, sort_keys=False, allow_unicode=True).strip(),
        "```",
        "",
        "## Versions",
        "",
        ", ".join(_versions()) + ".",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _results(recipe: Recipe, stages: Mapping[str, Path]) -> list[str]:
    """Return the section with each stage's last loss and development scores; empty without records."""
    rows = []
    for stage in recipe.stages:
        records = read_metrics(stages[stage.name] / METRICS_FILE) if stage.name in stages else []
        losses = [row for row in records if "loss" in row]
        if not losses:
            continue
        evaluations = evaluation_results(records)
        if recipe.evaluation is not None and recipe.evaluation.keep == "best":
            # The first score of a record decides; the score before training does not count.
            tried = [entry for entry in evaluations if entry[0] > 0]
            evaluations = [max(tried, key=lambda entry: next(iter(entry[1].values())))] if tried else []
        scores = evaluations[-1][1] if evaluations else {}
        shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        last = losses[-1]
        rows.append(
            f"| {stage.name} | {stage.stage} | {last['step']} | {last['loss']:.4f} | {shown or '-'} |"
        )
    if not rows:
        return []
    lines = ["## Results", ""]
    if recipe.evaluation is not None:
        evaluation = recipe.evaluation
        when = "the best of each stage, whose weights it kept" if evaluation.keep == "best" else "at its end"
        lines += [f"Evaluation: {evaluation.label}, {when}.", ""]
    header = ["| stage | kind | steps | last loss | development set |", "|---|---|---|---|---|"]
    return [*lines, *header, *rows, ""]


def _versions() -> list[str]:
    """Return the versions of the installed training libraries."""
    versions = []
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return versions
