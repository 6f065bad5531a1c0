"""Robust filtering of client updates: norm clipping, rejection, sign-flip detection and quarantine.

:class:`~spyker.robust.update_filter.UpdateFilter` checks an update and returns a verdict. It knows neither servers nor
messages: the caller applies the verdict.
"""
