"""Asking LLMs behind OpenAI-compatible endpoints; every answer is paid for once, and kept in a journal."""
