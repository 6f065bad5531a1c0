"""Goodput under faults: how much of its work a deployment still does while servers and clients are destroyed.

``python -m chaos.goodput``. ``schedule.py`` draws the faults from a seed, ``federation.py`` runs Spyker's processes and
``flower.py`` Flower's under them, ``figures.py`` counts what is left of the updates, ``digits.py`` is what they train.
"""
