"""The only modules that change mteb: its registries, the names of models, what it submits."""
