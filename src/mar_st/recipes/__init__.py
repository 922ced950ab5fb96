"""Recipes: their YAML files, their schema, and the rules that follow from them."""
