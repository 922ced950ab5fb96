"""Texts of a build: their records, reading them, and running work on them shard by shard."""
