"""Fault drill: a deployment of real processes in network namespaces, with all faults that it must survive.

``python -m chaos.drill``, as root. ``drills.py`` has one function per fault, ``deployed.py`` the processes,
``server_records.py`` the servers' run records, ``checks.py`` the invariants, ``report.py`` the results.
"""
