"""Fixtures of tests that build servers."""

from server_fixtures import build, grow, settle, time

__all__ = ["build", "grow", "settle", "time"]
