"""Fault injection: seeds, fault plans, checkers, planted bugs, drills; part of the repository, not of the wheel.

From one seed follow a cluster of whole simulated server processes (:mod:`~chaos.faulty_cluster`), the faults that
happen to it (:mod:`~chaos.fault_plan`), and so every event. Checkers (:mod:`~chaos.checks`) watch each step and the
end. What they find is repeated from the seed alone, and shrunk to few faults (:mod:`~chaos.campaign`). The manner is
that of FoundationDB and TigerBeetle. ``python -m chaos`` runs seeds; they must find :mod:`~chaos.planted_bugs`.

:mod:`chaos.wan` is a wide-area network of real processes on one machine, :mod:`chaos.drill` what goes wrong there.
"""
