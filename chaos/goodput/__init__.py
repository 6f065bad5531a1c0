"""Goodput under faults: how much of its work a deployment still does while servers and clients are destroyed.

``python -m chaos.goodput``. ``schedule.py`` draws the faults from a seed. ``federation.py`` runs Spyker's processes
under these faults, and ``flower.py`` runs Flower's. ``digits.py`` is the task. ``figures.py`` counts the updates that
are in final states.
"""
