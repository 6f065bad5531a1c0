"""Reading what a node answered."""

import numpy as np

from spyker.protocol.messages import Record, ToServer, Update


def vector(*values):
    return np.array(values, np.float32)


def update(*values, version=0):
    return Update(vector(*values), 0.0, version)


def sent(actions):
    return [(a.server, a.message) for a in actions if isinstance(a, ToServer)]


def stated(actions, kind):
    return [a.fact for a in actions if isinstance(a, Record) and isinstance(a.fact, kind)]
