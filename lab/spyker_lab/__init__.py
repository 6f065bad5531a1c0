"""Experiments with Spyker: the paper reproduced, the race of algorithms, and native kernels."""
