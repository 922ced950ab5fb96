"""Fuzzing of what comes from outside: `make fuzz SECONDS=120`.

Each module of `targets` reads one kind of input as the project does. The engine changes valid inputs and
gives them to it; an exception that is not one of the target's refusals, a signal, a report of a sanitizer and
a case that takes too long are failures. `python -m tests.fuzz --help` says how to run one target or to repeat
one input.
"""
