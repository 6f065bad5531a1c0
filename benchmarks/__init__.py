"""Benchmarks: each a ratio, taken side by side in one run."""
