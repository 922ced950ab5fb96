"""The first step of a build: replaces identifiers of persons before texts leave the machine.

`step` has the step and `anonymize`, `find` has the recognisers and presidio's engine with them, and
`evaluate` measures them. Import the modules by name: presidio takes seconds to load.
"""
