"""The tasks that come with Spyker, one file each, and what they are made of."""
