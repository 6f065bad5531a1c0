"""The public Python API, which the commands call: run, compare, sweep, load and results.

This package makes the decisions before a run starts: the folder of its record, what may be overwritten, and what must
be checked first.
"""
