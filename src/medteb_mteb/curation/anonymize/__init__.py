"""The first step of a build: identifiers of persons leave the text before the text leaves the machine.

`step` holds the step and `anonymize`, `find` the recognisers and presidio's engine with them, `evaluate` what
measures them. Modules are imported by name: presidio takes seconds to load.
"""
