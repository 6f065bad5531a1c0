"""Fixtures of tests that run tasks in engines."""

from engine_fixtures import digits, fragile

__all__ = ["digits", "fragile"]
