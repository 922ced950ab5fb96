"""The steps of a pipeline, one module each: a new module here is all that a new step needs."""
