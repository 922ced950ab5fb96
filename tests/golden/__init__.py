"""Figures that changes of the code must not change; `python -m tests.golden` writes them."""
