"""The live page and the report: a run as something to watch, made from its record alone.

Theory of operation
-------------------
The page never holds a whole run. A :class:`~spyker.dashboard.watched_run.WatchedRun` reads the record's facts once, in
order, and keeps three things of them, each of bounded size however long the run is: *series* for the charts, thinned to
a few hundred points; the *newest state* (who holds the token, how old each model is, who was given what); and some
hundred *keyframes*, copies of the state with the place in the file where they hold.

What a person looks at is a moment. The state at any time follows from the keyframe before it and the facts after that,
which are read again from the file: a *window* is the state at its beginning, the events in it and the messages under
way. An event says what changed (its *patch*), so that the browser can play it back and forth and needs to know no
protocol. Records have no facts about sending; :mod:`~spyker.dashboard.flights` says how messages under way follow from
those that there are.

``server.py`` serves this to browsers, ``report.py`` writes it into one file; both run the same JavaScript, whose data
come over the network or from the file. It stands in ``static``, as people wrote it.
"""
