"""The command ``spyker``: argument parsing, and nothing else."""
