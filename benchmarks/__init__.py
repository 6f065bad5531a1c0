"""Benchmarks. Each measures a ratio of two alternating measurements, so that noise affects both."""
