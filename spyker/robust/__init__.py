"""Robust filtering of client updates: norm clipping, rejection, sign-flip detection and quarantine."""
