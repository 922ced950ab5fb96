"""The edition that a build makes, and its card."""
