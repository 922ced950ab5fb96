"""Estimates of steps, memory and time of a recipe, without loading weights."""
