"""The race: every algorithm gets the same search for its settings, and then runs in many worlds, seed by seed.

``worlds.py`` says where, ``spaces.py`` what is searched, ``search.py`` how; ``lineup.py`` has who runs where, and
``board.py`` what came of it; ``bars.py`` holds that against what we want; ``tables.py``, ``figure.py`` and
``document.py`` tell it.
"""
