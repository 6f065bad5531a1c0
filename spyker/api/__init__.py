"""What ``import spyker`` offers, and what the commands call: one run, several to compare, many, and what came of them.

Everything that is decided about a run before it begins is decided here: where its record goes, what may give way to
it, and what has to be in order first.
"""
