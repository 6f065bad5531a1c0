"""Stride among many servers: an exchange goes through a tree."""

from collections import Counter, deque

import numpy as np
import pytest
from actions import sent, stated, timers, update, vector

from spyker.algorithms.stride import Stride
from spyker.algorithms.stride_exchange import EXCHANGE, FIRST_TIMEOUT
from spyker.algorithms.stride_messages import ExchangeModel, ExchangeRequest, ExchangeResult, Token
from spyker.algorithms.stride_tree import StrideTree
from spyker.protocol.facts import Merged, SyncStarted
from spyker.protocol.messages import ToServer
from spyker.protocol.server import Work

PLAIN = {"momentum": 0.0, "gain": 1.0, "clip": 0.0, "exchange_rounds": 1, "safe": False}


@pytest.fixture
def crowd(build):
    """So many servers with a client each, of i + 1 data points at server i, which has learnt i²; server 0 has not."""

    def make(n):
        servers = build("stride", [[i + 1] for i in range(n)], **PLAIN)
        for server in servers:
            list(server.start())
            if server.id:
                learn(server, server.id**2)
        return servers

    return make


def learn(server, value):
    return server.handle(server.id, update(value, version=server.version))


def models(servers):
    return [server.weights.snapshot().item() for server in servers]


def mean(servers, values):
    return np.average(values, weights=[server.id + 1 for server in servers])


def exchange(servers, silent=()):
    """The holder of the token learns nothing, but begins. Whoever waits for somebody silent waits until time is up."""
    holder = next(server for server in servers if server.holds and server.id not in silent)
    done, running = [], []
    queue = deque((holder.id, action) for action in learn(holder, 0))
    while queue or running:
        if not queue:
            waits = running.pop()  # who was called last is farthest down
            queue.extend((waits, action) for action in servers[waits].expire(EXCHANGE))
            continue
        node, action = queue.popleft()
        done.append((node, action))
        for timer, seconds in timers([action]):
            if timer == EXCHANGE:
                running = [i for i in running if i != node] + [node] * (seconds is not None)
        if isinstance(action, ToServer) and action.server not in silent:
            queue.extend((action.server, a) for a in servers[action.server].handle(node, action.message))
    return done


def count(done):
    return Counter(type(action.message) for _, action in done if isinstance(action, ToServer))


@pytest.mark.parametrize(("n", "kind"), [(1, Stride), (8, Stride), (9, StrideTree), (100, StrideTree)])
def test_more_servers_than_a_crowd_use_a_tree(build, n, kind):
    assert {type(server) for server in build("stride", [[1]] * n)} == {kind}
    assert {type(server) for server in build("stride", [[1]] * n, tree_threshold=n)} == {Stride}


@pytest.mark.parametrize("n", [9, 16, 50])
def test_an_exchange_takes_two_models_for_each_but_one_and_everybody_ends_at_the_mean(crowd, n):
    servers = crowd(n)
    goal = mean(servers, models(servers))
    momenta = mean(servers, [server.momentum.snapshot().item() for server in servers])
    done = exchange(servers)
    assert count(done) == {ExchangeRequest: n - 1, ExchangeModel: n - 1, ExchangeResult: n - 1, Token: 1}
    assert models(servers) == pytest.approx([goal] * n)
    assert [server.momentum.snapshot().item() for server in servers] == pytest.approx([momenta] * n)
    assert [server.age for server in servers] == pytest.approx([servers[0].age] * n)
    assert sorted(fact.server for _, a in done for fact in stated([a], Merged)) == list(range(n))
    assert servers[1].holds


@pytest.mark.parametrize("n", [9, 10, 16, 17, 50])
def test_nobody_is_more_than_two_steps_from_the_root_wherever_that_is(crowd, n):
    servers = crowd(n)
    for root in (0, 1, n - 1):
        for server in servers:
            server.root = root
        below = {server.id: server.children() for server in servers}
        assert sorted(j for js in below.values() for j in js) == sorted(set(range(n)) - {root})
        assert all(servers[j].parent() == i for i, js in below.items() for j in js)
        near = below[root]
        assert sorted(near + [j for i in near for j in below[i]]) == sorted(set(range(n)) - {root})


@pytest.mark.parametrize("n", [9, 16])
def test_the_token_goes_round_the_crowd(crowd, n):
    servers, roots = crowd(n), []
    for _ in range(n + 2):
        roots += [fact.server for _, a in exchange(servers) for fact in stated([a], SyncStarted)]
        assert sum(server.holds for server in servers) == 1
    assert roots == [i % n for i in range(n + 2)]


def test_what_was_learnt_meanwhile_stays(crowd):
    servers = crowd(9)
    goal = mean(servers, models(servers))
    queue = deque((0, action) for action in learn(servers[0], 0))
    while queue:
        node, action = queue.popleft()
        if isinstance(action, ToServer):
            if isinstance(action.message, ExchangeResult) and action.server == 5:
                learn(servers[5], 7)
            queue.extend((action.server, a) for a in servers[action.server].handle(node, action.message))
    assert models(servers) == pytest.approx([goal + 7 * (server.id == 5) for server in servers])


@pytest.mark.parametrize("n", [9, 16, 50])
@pytest.mark.parametrize("silent", [1, -1], ids=["below the root", "at the end of a branch"])
def test_with_one_silent_server_the_others_still_exchange(crowd, n, silent):
    servers = crowd(n)
    silent %= n
    out = {silent, *below(servers, silent)}
    taking_part = [server for server in servers if server.id not in out]
    before = models(servers)
    goal = mean(taking_part, [before[server.id] for server in taking_part])
    done = exchange(servers, silent={silent})
    assert models(taking_part) == pytest.approx([goal] * len(taking_part))
    assert [models(servers)[i] for i in sorted(out)] == [before[i] for i in sorted(out)], "left out, not moved by half"
    assert count(done)[Token] == 1
    told = {a.server for _, a in done if isinstance(a, ToServer) and isinstance(a.message, ExchangeResult)}
    assert told == {server.id for server in taking_part} - {0}, "who was left out is not told either"
    assert servers[2 if silent == 1 else 1].holds


def below(servers, i):
    """Who is below server i when server 0 is the root."""
    for server in servers:
        server.root = 0
    return servers[i].children()


def test_the_first_exchange_may_take_long_and_a_leaf_waits_for_nobody(crowd):
    servers = crowd(9)
    assert timers(learn(servers[0], 0)) == [("round", None), (EXCHANGE, FIRST_TIMEOUT)]
    assert timers(servers[1].handle(0, ExchangeRequest(1, 0))) == [(EXCHANGE, FIRST_TIMEOUT)]
    leaf = servers[8].handle(2, ExchangeRequest(1, 0))
    assert timers(leaf) == [(EXCHANGE, FIRST_TIMEOUT), (EXCHANGE, None)]
    assert [(receiver, type(message)) for receiver, message in sent(leaf)] == [(2, ExchangeModel)]


def test_what_is_over_is_ignored(crowd):
    servers = crowd(9)
    exchange(servers)
    before = models(servers)
    assert servers[1].handle(0, ExchangeRequest(1, 0)) == []
    assert servers[0].handle(1, ExchangeModel(vector(99), vector(0), 0.0, 5, 1)) == []
    assert servers[1].handle(0, ExchangeResult(vector(99), vector(0), 0.0, 1)) == []
    assert models(servers) == before


def test_a_model_from_below_and_one_from_above_cost_a_mix(crowd):
    server = crowd(9)[1]
    assert server.work(4, ExchangeModel(vector(0), vector(0), 0.0, 1, 1)) is Work.MIX
    assert server.work(0, ExchangeResult(vector(0), vector(0), 0.0, 1)) is Work.MIX
    assert server.work(0, ExchangeRequest(1, 0)) is Work.NOTHING


def test_nobody_who_took_part_is_called_absent(crowd):
    done = exchange(crowd(9))
    assert [a.message.absent for _, a in done if isinstance(a, ToServer) and isinstance(a.message, Token)] == [()]


def test_the_first_time_at_the_root_has_time_enough(build, time):
    """Servers 4, 5 and 6 are near server 1, below which they are in the first exchange; the others are far from it."""
    servers = build("stride", [[1]] * 9, now=time, **PLAIN)
    for server in servers:
        list(server.start())
    servers[1].handle(0, ExchangeRequest(1, 0))
    time.now = 0.01
    for j in (4, 5, 6):
        servers[1].handle(j, ExchangeModel(vector(0), vector(0), 0.0, 1, 1))
    learn(servers[1], 1)
    assert timers(servers[1].handle(0, Token(1))) == [(EXCHANGE, FIRST_TIMEOUT)]
