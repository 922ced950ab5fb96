"""Judging pools of documents by several LLMs, on the published five-letter scale."""
