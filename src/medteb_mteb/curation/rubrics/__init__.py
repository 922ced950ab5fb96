"""Answers of LLMs, graded by rubrics, and graders, graded by people."""
