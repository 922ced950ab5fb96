"""Short real runs of a recipe: rehearsals, trials, and measurements of a device."""
