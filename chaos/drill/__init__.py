"""A deployment of real processes in network namespaces, to which everything happens that it promises to survive.

``python -m chaos.drill``, as root. ``drills.py`` has what happens, one function each; ``deployed.py`` the processes,
``book.py`` what their records say, ``checks.py`` what must hold of all of it, ``report.py`` how it is told.
"""
