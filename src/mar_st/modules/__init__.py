"""Building blocks of a MAR folder: the arrangement of modules, and the modules of this package."""
