"""The dashboard and the report: views of runs, made from run records only.

Theory of operation
-------------------
A :class:`~spyker.dashboard.watched_run.WatchedRun` reads the facts of a record once, in order, and keeps a bounded
amount of data: *series* for the charts, thinned to a few hundred points; the *latest state* (token holder, ages,
counts); and a few hundred *keyframes*, copies of the state with their offsets in the file.

The state at any time is the preceding keyframe plus the facts after it, which are read again from the file. A *window*
is the state at its start, its events and the messages in flight. An event contains the changed values, so the browser
can play events forwards and backwards without knowing the protocol. Records contain no facts about sending;
:mod:`~spyker.dashboard.flights` derives the messages in flight from other facts.

``http_server.py`` serves this data to browsers, ``report.py`` writes it into one file. Both use the same JavaScript in
``static``, which gets its data over the network or from the file. It is not compiled or minified.
"""
