"""Training stages, one file each; a recipe is a list of them."""
