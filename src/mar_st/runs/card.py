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
        digests: Digest of every data entry, by name.
        stages: Training folder of each stage, by name; its `metrics.jsonl` has the results.
    """
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
        data="\n".join(f"| {one.name} | `{one.path}` | `{digests[one.name]}` |" for one in recipe.data),
        results="\n".join(
            f"| {stage.name} | {stage.stage} | {_result(stages[stage.name])} |" for stage in recipe.stages
        ),
        recipe=yaml.safe_dump(
            recipe.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True
        ).strip(),
        versions=", ".join(f"{name} {version(name)}" for name in LIBRARIES),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _result(folder: Path) -> str:
    """Return the cells of a stage: its steps, its last loss, its last scores on the development set."""
    step, loss, scores = 0, "", "-"
    for row in read_metrics(folder / METRICS_FILE):
        step = row["step"]
        if "loss" in row:
            loss = f"{row['loss']:.4f}"
        own = {
            name.removeprefix("eval_"): value
            for name, value in row.items()
            if name.startswith(("eval_dev_", "eval_mteb_"))
        }
        if own:
            scores = ", ".join(f"{name} {value:.4f}" for name, value in own.items())
    return f"{step} | {loss} | {scores}"
