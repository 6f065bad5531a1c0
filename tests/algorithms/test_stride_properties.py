"""What holds for Stride whatever its clients answer, and in whatever order messages between servers arrive."""

from collections import Counter

import numpy as np
import pytest
from actions import stated, update
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.algorithms.consensus import REMEMBERED
from spyker.algorithms.stride import ROUND
from spyker.protocol.facts import RoundEnded, SyncStarted
from spyker.protocol.messages import Join, Leave, ToServer, Update

PLAIN = {"momentum": 0.0, "gain": 1.0, "clip": 0.0, "safe": False}
ALL_AWAITED = {"clip": 0.0, "patience": 1e9, "safe": False}
VALUES = st.integers(-8, 8)


# --- The exchange keeps the mean -------------------------------------------------------------------------------------


class Net:
    """Servers and FIFO links between them; a test says which link delivers next."""

    def __init__(self, servers):
        self.servers, self.links = servers, {}
        self.started = 0
        for server in servers:
            list(server.start())
            server.data = {j: points(other) for j, other in enumerate(servers) if other is not server}

    def perform(self, sender, actions):
        self.started += len(stated(actions, SyncStarted))
        for action in actions:
            if isinstance(action, ToServer):
                self.links.setdefault((sender, action.server), []).append(action.message)

    def deliver(self, choice):
        """The oldest message of some link arrives."""
        link = sorted(self.links)[choice % len(self.links)]
        message = self.links[link].pop(0)
        if not self.links[link]:
            del self.links[link]
        self.perform(link[1], self.servers[link[1]].handle(link[0], message))

    def total(self):
        """Σ d_i·W_i and Σ d_i·m_i."""
        return sum(points(server) * state(server) for server in self.servers)


def points(server):
    return sum(server.sizes.values())


def state(server):
    return np.concatenate([server.weights.snapshot(), server.momentum.snapshot()]).astype(float)


@pytest.mark.parametrize("crowd", [9, 1], ids=["all to all", "tree"])
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=2), min_size=2, max_size=4),
    more=st.lists(st.integers(1, 9).map(lambda size: [size]), max_size=6),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 99), VALUES), max_size=80),
)
def test_exchanges_leave_the_mean_of_all_servers_alone(build, crowd, sizes, more, steps):
    """Models and momenta, by data. What clients answer meanwhile moves it by what it moves their server, and no more.

    A tree may be large. With everybody to everybody and more than four servers, a link could be so slow that an
    exchange is over and forgotten before its last model arrives.
    """
    sizes += more if crowd == 1 else []
    net = Net(
        build("stride", sizes, initial=(0.0, 1.0), momentum=0.5, exchange_rounds=1, tree_threshold=crowd, safe=False)
    )
    homes = [(i, k) for i, server in enumerate(net.servers) for k in server.sizes]
    expected = net.total()
    for is_answer, choice, value in steps:
        if is_answer and net.started < REMEMBERED:
            i, k = homes[choice % len(homes)]
            server = net.servers[i]
            before = state(server)
            net.perform(i, server.handle(k, update(value, value / 2, version=server.version)))
            expected += points(server) * (state(server) - before)
        elif net.links:
            net.deliver(choice)
    while net.links:
        net.deliver(0)
    assert net.total() == pytest.approx(expected, rel=1e-4, abs=1e-2)


def test_there_are_such_exchanges(build):
    """The property above is not one of servers that never speak."""
    for crowd in (9, 1):
        net = Net(build("stride", [[1], [2], [3]], **PLAIN, exchange_rounds=1, tree_threshold=crowd))
        net.perform(0, net.servers[0].handle(0, update(6)))
        between = net.total()
        while net.links:
            net.deliver(0)
        assert net.total() == pytest.approx(between)
        assert [server.weights.snapshot().item() for server in net.servers] == pytest.approx([1.0] * 3)


# --- An answer counts once -------------------------------------------------------------------------------------------

ANSWERS = 24


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["answer"] * 5 + ["expire", "leave", "join"]), st.integers(0, 5), st.integers(1, 5)),
        max_size=60,
    )
)
def test_every_answer_counts_in_one_round_with_its_share(build, steps):
    """Answer number i moves the i-th parameter by 1 and no other. So the model says which answers were in a round."""
    (server,) = build("stride", [[1, 2, 3]], initial=(0.0,) * ANSWERS, **PLAIN)
    list(server.start())
    sizes, busy, given_so_far = {0: 1, 1: 2, 2: 3}, {0, 1, 2}, 0
    pending, answered = Counter(), set()
    for what, k, size in steps:
        before, waiting = server.weights.snapshot(), Counter(pending)
        if what == "answer" and k in busy and given_so_far < ANSWERS:
            direction = np.zeros(ANSWERS, np.float32)
            direction[given_so_far] = 1
            sizes[k] = size
            waiting[given_so_far] = size
            given_so_far += 1
            busy.discard(k)
            answered.add(k)
            actions = server.handle(k, Update(direction, 0.0, server.version, examples=size))
        elif what == "join" and k not in sizes:
            sizes[k] = size
            actions = server.handle(k, Join(size))
        elif what == "leave" and k in sizes:
            del sizes[k]
            busy.discard(k)
            actions = server.handle(k, Leave())
        elif what == "expire":
            actions = server.expire(ROUND)
        else:
            continue
        busy |= {action.client for action in actions if hasattr(action, "client")}
        moved = server.weights.snapshot() - before
        if stated(actions, RoundEnded):
            missing = sum(size for k, size in sizes.items() if k not in answered)
            shares = {i: size / (sum(waiting.values()) + missing) for i, size in waiting.items()}
            assert {i: float(moved[i]) for i in np.flatnonzero(moved)} == pytest.approx(shares)
            pending, answered = Counter(), set()
        else:
            assert not moved.any()
            pending = waiting
    assert server.weight == sum(pending.values()), "what has not counted yet is kept"


# --- What it is without its specialities -----------------------------------------------------------------------------


def train(model, goals, k):
    """A client that goes half of its way."""
    return (model + (np.float32(goals[k]) - model) / 2).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    clients=st.lists(st.tuples(st.integers(1, 9), VALUES), min_size=1, max_size=5),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    gain=st.sampled_from([0.5, 1.0]),
    rounds=st.lists(st.randoms(use_true_random=False), min_size=1, max_size=6),
)
def test_one_server_that_waits_for_all_and_shortens_nothing_is_fedavgm(build, clients, momentum, gain, rounds):
    sizes, goals = [size for size, _ in clients], [goal for _, goal in clients]
    (ours,) = build("stride", [sizes], momentum=momentum, gain=gain, **ALL_AWAITED)
    (theirs,) = build("fedavgm", [sizes], momentum=momentum, server_rate=gain)
    for server in (ours, theirs):
        list(server.start())
    for random in rounds:
        order = random.sample(range(len(sizes)), len(sizes))
        mine, other = ours.weights.snapshot(), theirs.weights.snapshot()
        for k in order:
            ours.handle(k, Update(train(mine, goals, k) - mine, 0.0, ours.version))
            theirs.handle(k, Update(train(other, goals, k), 0.0, theirs.version))
        assert ours.weights.snapshot() == pytest.approx(theirs.weights.snapshot(), rel=1e-4, abs=1e-4)
        assert (ours.round, ours.version, ours.age) == (theirs.round, theirs.version, theirs.age)


@settings(max_examples=40, deadline=None)
@given(
    regions=st.lists(st.lists(st.tuples(st.integers(1, 9), VALUES), min_size=1, max_size=3), min_size=2, max_size=4),
    kappa=st.integers(1, 3),
    exchanges=st.integers(1, 5),
)
def test_without_momentum_and_with_idle_exchanges_it_is_hierfavg(build, settle, regions, kappa, exchanges):
    """The holder of the token has its rounds last, so that nobody learns anything while models are under way."""
    sizes = [[size for size, _ in region] for region in regions]
    goals = [goal for region in regions for _, goal in region]
    ours = build("stride", sizes, **PLAIN | ALL_AWAITED, exchange_rounds=kappa)
    theirs = build("hierfavg", sizes, edge_rounds=kappa)
    for server in (*ours, *theirs):
        list(server.start())
    for server in ours:
        server.data = {j: sum(sizes[j]) for j in range(len(sizes)) if j != server.id}
    for number in range(exchanges):
        holder = number % len(ours)
        for i in [*(i for i in range(len(ours)) if i != holder), holder]:
            for _ in range(kappa):
                mine, other = ours[i].weights.snapshot(), theirs[i].weights.snapshot()
                for k in ours[i].sizes:
                    settle(ours, i, ours[i].handle(k, Update(train(mine, goals, k) - mine, 0.0, 0)))
                    settle(theirs, i, theirs[i].handle(k, Update(train(other, goals, k), 0.0, theirs[i].version)))
        assert ours[holder].latest == number + 1
        for server in ours:
            assert server.weights.snapshot() == pytest.approx(theirs[0].weights.snapshot(), rel=1e-4, abs=1e-4)
