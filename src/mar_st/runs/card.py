"""The model card that a run writes beside its model."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import yaml

from mar_st.model.describe import count_parameters
from mar_st.modules.layout import loading_call
from mar_st.stages.trainer import METRICS_FILE, read_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.recipes.schema import Recipe

#: Libraries whose versions a card names.
LIBRARIES = ("medteb", "sentence-transformers", "transformers", "torch")

_TEXT = """---
{header}
---

# {name}

{description}.

```python
from sentence_transformers import SentenceTransformer

model = {call}  # the folder
queries = model.encode_query(texts)
documents = model.encode_document(texts)
```

Parameters: {parameters:,}. Seed {seed}.

## Data

| name | source | sha256 |
|---|---|---|
{data}

## Results

| stage | kind | steps | last loss | development set |
|---|---|---|---|---|
{results}

## Recipe

```yaml
{recipe}
```

Trained with {versions}.
"""


def write_card(folder: Path, recipe: Recipe, digests: Mapping[str, str], stages: Mapping[str, Path]) -> None:
    """Write `README.md` into a model folder: description, data, results, recipe.

    Args:
        folder: The model folder.
        recipe: The recipe it was trained with.
        digests: Digest of every data entry that was used, by name.
        stages: Training folder of each stage, by name; its `metrics.jsonl` has the results.
    """
    parameters = count_parameters(folder)
    best = recipe.evaluation is not None and recipe.evaluation.keep == "best"
    known = {
        "license": recipe.licence,
        "language": list(recipe.languages),
        "release_date": recipe.released and recipe.released.isoformat(),
    }
    header = {
        **{key: value for key, value in known.items() if value},
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["mar", "asymmetric" if recipe.asymmetric else "symmetric"],
        "n_parameters": parameters,
        "training_code": f"mar train {recipe.name}",
    }
    text = _TEXT.format(
        header=yaml.safe_dump(header, sort_keys=False).strip(),
        name=recipe.name,
        description=f"{recipe.description[0].upper()}{recipe.description[1:]}",
        call=loading_call(recipe.name, folder),
        parameters=parameters,
        seed=recipe.seed,
        data="\n".join(
            f"| {one.name} | `{one.path}` | `{digests[one.name]}` |"
            for one in recipe.data
            if one.name in digests
        ),
        results="\n".join(
            f"| {stage.name} | {stage.stage} | {_result(stages[stage.name], best)} |"
            for stage in recipe.stages
        ),
        recipe=yaml.safe_dump(
            recipe.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True
        ).strip(),
        versions=", ".join(f"{name} {version(name)}" for name in LIBRARIES),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _result(folder: Path, best: bool) -> str:
    """Return the cells of a stage: its steps, its last loss, the development score of the weights it kept."""
    step, loss, scores = 0, "", []
    for row in read_metrics(folder / METRICS_FILE):
        step = row["step"]
        if "loss" in row:
            loss = f"{row['loss']:.4f}"
        scores += [
            (value, name.removeprefix("eval_")) for name, value in row.items() if name.startswith("eval_dev_")
        ]
    shown = "-"
    if scores:
        value, name = max(scores) if best else scores[-1]
        shown = f"{name} {value:.4f}"
    return f"{step} | {loss} | {shown}"
