"""A server that was saved and restored is the server that was saved: it does the same from then on.

Random histories of whole deployments, with clients that train, join, leave, come back and answer with models of other
rounds. At some moment all servers are saved, through JSON, and restored into fresh objects. From then on both get the
same messages and must answer with the same actions, to the bit.
"""

import dataclasses
import json

import numpy as np
import pytest
from actions import update, vector
from every_algorithm import ALGORITHMS
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.algorithms.hierfavg import Cloud
from spyker.placement import Topology
from spyker.protocol.messages import (
    Join,
    Leave,
    PeerModel,
    Requeue,
    StartTimer,
    StopTimer,
    ToClient,
    ToServer,
    Update,
)
from spyker.protocol.state import ServerState
from spyker.robust.update_filter import FilterParameters

PARAMETERS = {
    "stride": {"exchange_rounds": 1},
    "spyker": {"h_inter": 2.0, "h_intra": 4.0},
    "sync-spyker": {"h_intra": 3.0},
    "fedasync": {},
    "fedavg": {"fraction": 0.6},
    "hierfavg": {"fraction": 0.6, "edge_rounds": 2},
    "fedbuff": {"buffer": 3},
    "fadas": {"buffer": 3},
    "asyncfeded": {},
    "fedasyncm": {},
    "fedavgm": {"fraction": 0.6},
    "hierfavgm": {"fraction": 0.6, "edge_rounds": 2},
}
STRICT = {"robust": FilterParameters(clip=1.01, reject=1.02, strikes=2)}
NEWCOMERS = 3
STEPS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 50), st.integers(-4, 4)), min_size=1, max_size=90)


def through_a_file(state):
    """What comes back from a disk: other objects with the same numbers."""
    numbers = json.loads(json.dumps(state.numbers, allow_nan=False))
    return ServerState(numbers, {name: values.copy() for name, values in state.vectors.items()})


def plain(thing):
    """Messages, actions and states as values that can be compared."""
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if dataclasses.is_dataclass(thing):
        return (type(thing).__name__, [plain(getattr(thing, f.name)) for f in dataclasses.fields(thing)])
    if isinstance(thing, dict):
        return {str(key): plain(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(part) for part in thing]
    return thing


class History:
    """A deployment that is moved by random numbers, and its restored twin, once there is one."""

    def __init__(self, build, algorithm, **parameters):
        single = ALGORITHMS[algorithm].topology is Topology.SINGLE
        sizes = [[1, 2, 3, 4]] if single else [[1, 2], [3], [1, 1, 1]]
        parameters = PARAMETERS.get(algorithm, {}) | parameters
        self.fresh = lambda: build(algorithm, sizes, initial=(0.0, 1.0), seed=3, **parameters)
        self.servers, self.twins = self.fresh(), []
        self.homes = [i for i, roster in enumerate(sizes) for _ in roster]
        self.homes += [k % len(sizes) for k in range(NEWCOMERS)]
        self.received = {}  # the model that each client has to train
        self.in_flight = []
        self.timers = {}  # those that run, of all servers
        for server in self.servers:
            self.perform(server.id, list(server.start()))

    def restart(self):
        """Save all servers and restore them; return what was saved, with a copy of it."""
        self.twins = self.fresh()
        saved = [server.state() for server in self.servers]
        for twin, state in zip(self.twins, saved, strict=True):
            twin.restore(through_a_file(state))
        return saved, [plain(state) for state in saved]

    def step(self, choice, which, value):
        """A client says something, a message between servers arrives, or a timer runs out."""
        k = which % len(self.homes)
        if choice == 11 and self.timers:
            i, timer = sorted(self.timers)[which % len(self.timers)]
            del self.timers[i, timer]
            self.expire(i, timer)
            return
        if choice >= 7 and self.in_flight:
            links = sorted({(sender, receiver) for sender, receiver, _ in self.in_flight})
            link = links[which % len(links)]
            position = next(i for i, (s, r, _) in enumerate(self.in_flight) if (s, r) == link)
            sender, receiver, message = self.in_flight.pop(position)
            self.handle(receiver, sender, message)
        elif choice == 0:
            self.handle(self.homes[k], k, Join(1 + which % 3))
        elif choice == 1:
            self.handle(self.homes[k], k, Leave())
        elif choice == 2:
            self.handle(self.homes[k], k, Update(vector(value, 2), 0.5, which))
        elif self.received:
            k = sorted(self.received)[which % len(self.received)]
            model = self.received.pop(k)
            weights = model.weights + np.float32(value / 7)
            self.handle(self.homes[k], k, Update(weights, model.age, model.version))

    def handle(self, i, sender, message):
        """Both must want the same."""
        work = self.servers[i].work(sender, message)
        actions = self.servers[i].handle(sender, message)
        if self.twins:
            assert self.twins[i].work(sender, message) is work
            assert plain(self.twins[i].handle(sender, message)) == plain(actions)
        self.perform(i, actions)

    def expire(self, i, timer):
        work = self.servers[i].work_of(timer)
        actions = self.servers[i].expire(timer)
        if self.twins:
            assert self.twins[i].work_of(timer) is work
            assert plain(self.twins[i].expire(timer)) == plain(actions)
        self.perform(i, actions)

    def perform(self, i, actions):
        for action in actions:
            if isinstance(action, StartTimer):
                self.timers[i, action.timer] = action.seconds
            elif isinstance(action, StopTimer):
                self.timers.pop((i, action.timer), None)
            elif isinstance(action, ToClient):
                self.received[action.client] = action.message
            elif isinstance(action, ToServer):
                self.in_flight.append((i, action.server, action.message))
        for action in actions:
            if isinstance(action, Requeue):
                for k, message in action.messages:
                    self.handle(i, k, message)


@pytest.mark.parametrize(
    ("algorithm", "parameters"),
    [
        *((algorithm, {}) for algorithm in ALGORITHMS),
        ("stride", {"tree_threshold": 1}),
        *((algorithm, STRICT) for algorithm in ("stride", "sync-spyker", "fedasync", "hierfavg")),
    ],
)
@settings(max_examples=60, deadline=None)
@given(before=STEPS, after=STEPS)
def test_a_restored_server_does_what_the_saved_one_does(build, algorithm, parameters, before, after):
    history = History(build, algorithm, **parameters)
    for step in before:
        history.step(*step)
    saved, copy = history.restart()
    for step in after:
        history.step(*step)
    assert [plain(server.state()) for server in history.twins] == [plain(s.state()) for s in history.servers]
    assert [plain(state) for state in saved] == copy, "what was saved was written to afterwards"


def walk(build, algorithm, seen, **parameters):
    """Whether a state of some history has what makes saving hard."""
    history = History(build, algorithm, **parameters)
    random = np.random.default_rng(1)
    for _ in range(600):
        history.step(int(random.integers(12)), int(random.integers(51)), int(random.integers(-4, 5)))
        if any(seen(server) for server in history.servers):
            return True
    return False


@pytest.mark.parametrize(
    ("algorithm", "seen"),
    [
        ("spyker", lambda s: s.ongoing_synchro and len(s.heard) > 1),
        ("spyker", lambda s: s.token is None and s.age_announced > 0),
        ("sync-spyker", lambda s: len(s.stored) > 1 and len(s.models) > 0),
        ("sync-spyker", lambda s: any(isinstance(message, Leave) for _, message in s.stored)),
        ("fedavg", lambda s: s.answered and s.awaited),
        ("fedbuff", lambda s: s.count > 1 and s.age > 1),
        ("asyncfeded", lambda s: len(s.given) > 5 and s.age > 10),
        ("fedasyncm", lambda s: len(s.present) > 5 and s.age > 2),
        ("fadas", lambda s: s.count > 1 and s.stalest > 1),
        ("hierfavg", lambda s: isinstance(s, Cloud) and len(s.models) > 1),
        ("hierfavg", lambda s: isinstance(s, Cloud) and s.away and s.models),
        ("hierfavgm", lambda s: isinstance(s, Cloud) and s.models and s.momentum.snapshot().any()),
    ],
)
def test_histories_like_these_reach_the_states_that_matter(build, algorithm, seen):
    assert walk(build, algorithm, seen)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_histories_like_these_interrupt_quarantines(build, algorithm):
    assert walk(
        build,
        algorithm,
        lambda s: s.update_filter.out and s.update_filter.strikes and s.update_filter.sign_flips.before,
        **STRICT,
    )


@pytest.mark.parametrize("crowd", [8, 1])
def test_histories_like_these_interrupt_rounds_and_exchanges_of_stride(build, crowd):
    assert walk(
        build, "stride", lambda s: s.answered and s.exchanging and len(s.exchange_models) > 1, tree_threshold=crowd
    )


def test_histories_like_these_interrupt_stride_when_somebody_is_missing(build):
    assert walk(build, "stride", lambda s: s.absent and s.holds and s.momentum.snapshot().any())


def test_a_tree_is_saved_while_something_is_still_to_come(build):
    assert walk(build, "stride", lambda s: s.asked and s.shares, tree_threshold=1)
    assert walk(build, "stride", lambda s: s.below and s.root != s.id, tree_threshold=1)


def test_a_state_shares_its_model_with_the_server_instead_of_copying_it(build):
    (server,) = build("fedasync", [[1]])
    assert server.state().vectors["weights"] is server.weights.snapshot()


def test_a_saved_half_done_average_is_not_the_one_that_is_written(build):
    (server,) = build("fedavg", [[1, 1, 2]])
    list(server.start())
    server.handle(0, update(4))
    average = server.state().vectors["average"]
    server.handle(1, update(400))
    assert average.tolist() == [1.0]


def test_a_model_of_another_size_is_refused(build):
    (server,) = build("fedasync", [[1]], initial=(0.0, 0.0))
    (other,) = build("fedasync", [[1]])
    with pytest.raises(ValueError, match=r"the saved model has 1 weights, but the task's model has 2"):
        server.restore(other.state())


def test_the_stored_models_of_other_servers_are_part_of_a_state(build):
    first, _, _ = build("sync-spyker", [[1], [1], [1]])
    first.handle(2, PeerModel(vector(5), 1.0, 1))
    state = through_a_file(first.state())
    again, _, _ = build("sync-spyker", [[1], [1], [1]])
    again.restore(state)
    assert plain(again.models) == plain({1: {2: PeerModel(vector(5), 1.0, 1), 0: PeerModel(vector(0), 0.0, 1)}})
