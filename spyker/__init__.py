"""Spyker: federated learning across regions, without a central server and without global rounds."""

__version__ = "0.1.0"
