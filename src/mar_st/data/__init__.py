"""Rows of files, and training data: reading it and converting it to the columns of a dataset."""
