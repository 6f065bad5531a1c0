"""The race: a comparison of algorithms with tuned settings in many worlds, paired by seed.

``worlds.py`` defines the worlds, ``spaces.py`` the search spaces, ``search.py`` the search, ``lineup.py`` the runs,
``board.py`` their results and ``bars.py`` the goals; ``tables.py``, ``figure.py`` and ``race_document.py`` write the
report.
"""
