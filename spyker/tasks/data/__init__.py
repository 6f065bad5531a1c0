"""Where data comes from: one loader for all datasets, with several sources, one cache, and nothing unverified."""
