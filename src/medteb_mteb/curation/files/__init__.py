"""Folders and files of a build: records, readers, places."""
