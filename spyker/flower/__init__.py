"""Flower apps as tasks: a ``ClientApp`` trains for Spyker's clients as it would for Flower's, unmodified.

Only these files import ``flwr``, ``flwr_datasets`` and ``datasets``, which are extras.
"""
