"""A static site of results: scores, comparisons and rankings as pages that open from a file."""

from medteb_mteb.site.build import Outcome, write_site
from medteb_mteb.site.systems import About, read_about

__all__ = ["About", "Outcome", "read_about", "write_site"]
