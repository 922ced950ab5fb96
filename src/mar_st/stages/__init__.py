"""Training stages: a recipe is a list of them."""
