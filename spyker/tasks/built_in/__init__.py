"""The built-in tasks, one file each, and their models."""
