"""One run of a recipe: its stages in order, their lineage, the model card."""
