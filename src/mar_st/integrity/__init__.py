"""Verification and repair of folders."""
