"""Reading what a node answered."""

import numpy as np

from spyker.protocol.messages import RecordFact, StartTimer, StopTimer, ToServer, Update


def vector(*values):
    return np.array(values, np.float32)


def update(*values, version=0):
    return Update(vector(*values), 0.0, version)


def sent(actions):
    return [(a.server, a.message) for a in actions if isinstance(a, ToServer)]


def stated(actions, kind):
    return [a.fact for a in actions if isinstance(a, RecordFact) and isinstance(a.fact, kind)]


def timers(actions):
    """What was done with timers: seconds for one that was started, None for one that was stopped."""
    done = (a for a in actions if isinstance(a, StartTimer | StopTimer))
    return [(a.timer, a.seconds if isinstance(a, StartTimer) else None) for a in done]
