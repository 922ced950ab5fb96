"""The first step of a build: replaces identifiers of persons before texts leave the machine.

`step` has the step and `anonymize`, `find` has the recognisers. Import the modules by name: presidio takes
seconds to load.
"""
