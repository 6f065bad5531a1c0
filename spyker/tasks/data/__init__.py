"""Datasets: sources, verification against checksums, and a cache."""
