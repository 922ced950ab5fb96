"""Texts of a build: their records, reading them, and running work on them shard by shard."""

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.step import TextsSettings, TextWork, run_step

__all__ = ["Dropped", "Text", "TextWork", "TextsSettings", "read_texts", "run_step"]
