"""Deterministic torture: whole server processes in the emulated world, everything that can go wrong, and checkers.

From one seed follow a world (:mod:`~spyker.torture.faulty_cluster`), what happens to it
(:mod:`~spyker.torture.fault_plan`), and so every event. Checkers (:mod:`~spyker.torture.checks`) watch each step and
the end. What they find is repeated from the seed alone, and shrunk to few events (:mod:`~spyker.torture.campaign`). The
manner is that of FoundationDB and TigerBeetle.
"""
