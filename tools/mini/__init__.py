"""The generator of the packaged, synthetic ``mini`` edition, for smoke tests and teaching."""

from __future__ import annotations

from tools.mini.edition import build_mini, generate, write_edition

__all__ = ["build_mini", "generate", "write_edition"]
