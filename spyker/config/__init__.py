"""Scenario files: what there is to set, what it means, and what makes sense."""
