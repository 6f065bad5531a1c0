"""What the tests of the protocol share: servers built in one line, a way to age them, a wire between them."""

from collections import deque

import numpy as np
import pytest
from every_algorithm import ALGORITHMS

from spyker.placement import Topology
from spyker.protocol.messages import ToServer, Update
from spyker.protocol.server import Setup


def build_servers(
    algorithm,
    sizes,
    initial=(0.0,),
    rate=0.05,
    seed=0,
    now=float,
    robust=None,
    masking=None,
    metrics=(),
    client_privacy=None,
    **parameters,
):
    """All servers of a deployment. ``sizes`` holds, for each server, the data points of each of its clients.

    Clients are numbered from 0 across all servers: with one client each, client i belongs to server i.
    """
    rosters, first = [], 0
    for of_one_server in sizes:
        rosters.append(dict(enumerate(of_one_server, first)))
        first += len(of_one_server)
    entry = ALGORITHMS[algorithm]
    given = entry.Parameters(**parameters)
    weights = np.array(initial, np.float32)
    counts = len(rosters), sum(map(len, rosters))
    settings = {
        "now": now,
        "robust": robust,
        "masking": masking,
        "client_metrics": dict(metrics),
        "client_privacy": client_privacy,
    }
    setup = Setup(*counts, weights, rate, given, seed, **settings)
    rosters += [{}] * (entry.topology is Topology.CLOUD)
    rosters += [{}] * (0 if masking is None else len(masking.dedicated))
    return [entry.create(id, setup, roster) for id, roster in enumerate(rosters)]


class Time:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self):
        return self.now


def grow_age(server, client, updates):
    """Age a server by fresh updates that equal its model and so leave its weights alone."""
    actions = []
    for _ in range(updates):
        actions += server.handle(client, Update(server.weights.snapshot(), server.age, server.version))
    return actions


def carry(servers, sender, actions):
    """Carry messages between servers, the first sent first, until none is under way. All actions, with their node."""
    done, queue = [], deque((sender, action) for action in actions)
    while queue:
        node, action = queue.popleft()
        done.append((node, action))
        assert len(done) < 10_000, "the servers never fall silent"
        if isinstance(action, ToServer):
            queue.extend((action.server, a) for a in servers[action.server].handle(node, action.message))
    return done


# These are plain functions without state, hence one of each is enough for all tests.


@pytest.fixture(scope="session")
def build():
    return build_servers


@pytest.fixture(scope="session")
def grow():
    return grow_age


@pytest.fixture(scope="session")
def settle():
    return carry


@pytest.fixture
def time():
    return Time()
