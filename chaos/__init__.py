"""Fault injection: seeds, fault plans, checkers, planted bugs, drills; part of the repository, not of the wheel.

A seed determines a cluster of whole simulated server processes (:mod:`~chaos.faulty_cluster`), its faults
(:mod:`~chaos.fault_plan`), and therefore every event. Checkers (:mod:`~chaos.checks`) observe each step and the end.
A violation is reproduced from its seed, and its plan is shrunk to few faults (:mod:`~chaos.campaign`), as FoundationDB
and TigerBeetle do. ``python -m chaos`` runs seeds; campaigns must find :mod:`~chaos.planted_bugs`.

:mod:`chaos.wan` emulates a wide-area network between real processes on one machine; :mod:`chaos.drill` injects faults
into a deployment there.
"""
