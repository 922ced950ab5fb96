"""Measuring the anonymiser on marked sentences, and fitting its weights for names without a label."""
