"""Validation of a retrieval edition as a reviewer would do it: a verdict, number and reason per point."""
