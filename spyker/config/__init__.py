"""Scenario files: keys, defaults, allowed values and error messages."""
