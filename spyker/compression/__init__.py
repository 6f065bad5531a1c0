"""Compression of vectors: codes with fewer bits per number, and the settings that choose them.

The package knows no messages. :mod:`~spyker.protocol.coded_messages` derives the messages that carry coded vectors.
"""
