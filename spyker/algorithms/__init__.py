"""The algorithms that come with Spyker, one file each: pure state machines written against :mod:`spyker.protocol`."""
