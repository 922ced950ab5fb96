"""One run of a recipe: its stages in order, their lineage, the model card."""

__all__ = ["STAGES_VARIABLE"]

#: Environment variable that names the folder of finished stages, unless `--stages` does.
STAGES_VARIABLE = "MAR_STAGES"
