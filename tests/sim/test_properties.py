"""What holds in every world, whatever its latencies, speeds and thresholds.

Each check below is a property of one run that was watched from start to end; it returns how often it had something to
look at, so that a property cannot hold merely because nothing ever happened. The worlds are random but always the same.
"""

import dataclasses
import itertools
import math
import zlib
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
from every_algorithm import ALGORITHMS
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from spyker.algorithms.builtin import COMPARED, OF_THE_PAPER
from spyker.algorithms.spyker import Spyker
from spyker.algorithms.sync_spyker import SyncSpyker
from spyker.config.scenario import dump, from_table
from spyker.engines.start_engine import start_engine
from spyker.protocol.client import Client
from spyker.protocol.facts import AgeAnnounced, Merged, SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.messages import Age, Model, PeerModel, RecordFact, ToClient, Token, ToServer, Update
from spyker.records import Evaluated, line
from spyker.sim.clock import Clock
from spyker.sim.processor import Processor
from spyker.sim.simulate import simulate
from spyker.sim.world import BareServerSimulation
from spyker.tasks.registry import resolve

WORLDS = 60  # for each check, shared out among the algorithms
EXPLOSION = 20_000  # messages handled; the liveliest of these worlds has a tenth of that
NEARLY = 1 + 1e-9  # sums of floats
FLAT = ("spyker", "sync-spyker")


# --- worlds ----------------------------------------------------------------------------------------------------------


def some(low, high):
    """A number from a range, one of a few: things should often coincide, because that is where order matters."""
    return st.integers(0, 30).map(lambda step: low + (high - low) * step / 30)


MIXING = {"client-rate": some(0.1, 1), "staleness-exponent": some(0, 2)}
BUFFER = {"buffer": st.integers(1, 4)}
MOMENTUM = {"server-rate": some(0.1, 1), "momentum": some(0, 0.9)}
PARAMETERS = {
    "stride": {
        "gain": some(0.1, 2),
        "momentum": some(0, 0.9),
        "clip": some(0, 2),
        "patience": some(1, 3),
        "exchange-rounds": st.integers(1, 3),
        "tree-threshold": st.integers(1, 6),
    },
    "spyker": MIXING
    | {
        "peer-rate": some(0.1, 1),
        "activation": some(0, 6),
        "h-inter": some(0.5, 8),
        "h-intra": some(0.5, 12),
        "decay": some(0, 0.06),
    },
    "fedasync": MIXING | {"staleness": st.sampled_from(["constant", "polynomial", "hinge"])},
    "fedavg": {"fraction": some(0.1, 1)},
    "hierfavg": {"fraction": some(0.1, 1), "edge-rounds": st.integers(1, 3)},
    "fedbuff": BUFFER | {"server-rate": some(0.1, 1), "staleness-exponent": some(0, 2)},
    "fadas": BUFFER | {"server-rate": some(0.01, 0.1), "delay-threshold": some(1, 4)},
    "asyncfeded": {"server-rate": some(0.1, 1), "epsilon": some(0.5, 2)},
    "fedasyncm": MOMENTUM | {"staleness-exponent": some(0, 2)},
    "fedavgm": MOMENTUM | {"fraction": some(0.1, 1)},
    "hierfavgm": MOMENTUM | {"fraction": some(0.1, 1), "edge-rounds": st.integers(1, 3)},
}


@st.composite
def scenarios(draw, algorithm, regions):
    """A small world, of at least so many regions, in which a run takes milliseconds."""
    n = draw(st.integers(regions, 6))
    clients = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))  # for the long lists, which would be slow to draw
    section = ALGORITHMS[algorithm].section
    table = {
        "algorithm": algorithm,
        "seed": draw(st.integers(0, 1000)),
        "duration": draw(some(0.4, 2)),
        "task": {"name": "quadratic", "dimension": draw(st.sampled_from([1, 300]))},
        "world": {
            "regions": [f"region {i}" for i in range(n)],
            "clients": clients,
            "latency-ms": (2 * random.integers(0, 31, (n, n))).tolist(),
            "bandwidth-mbit": draw(st.sampled_from([0.5, 100.0])),
            "server-region": draw(st.integers(0, n - 1)),
            "mix-ms": draw(some(0, 3)),
        },
        "training": {
            "rate": draw(some(0.05, 1)),
            "delay-ms": (2 * random.integers(4, 41, sum(clients))).tolist(),
        },
        "evaluation": {"interval": 0.25},
        section: draw(st.fixed_dictionaries(PARAMETERS[section])),
    }
    return resolve(from_table(table))


def crowded(algorithm, bandwidth, mix):
    """A world in which messages pile up, on slow links or before slow processors. No check depends on luck alone."""
    table = {
        "algorithm": algorithm,
        "duration": 0.8,
        "task": {"name": "quadratic", "dimension": 300},
        "world": {
            "regions": ["a", "b", "c", "d"],
            "clients": [3, 1, 2, 3],
            "latency-ms": [[0, 9, 30, 4], [9, 1, 12, 50], [30, 12, 2, 7], [4, 50, 7, 0]],
            "bandwidth-mbit": bandwidth,
            "mix-ms": mix,
        },
        "training": {"delay-ms": [8, 41, 97, 9, 8, 60, 10, 35, 83]},
        "evaluation": {"interval": 0.25},
    }
    if ALGORITHMS[algorithm].section == "spyker":
        table["spyker"] = {"h-inter": 1.5, "h-intra": 4}
    return resolve(from_table(table))


# --- watching --------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """A server handled a message."""

    time: float
    server: int
    sender: int
    message: object
    actions: list
    age: float
    version: int
    token: int | None  # Spyker: the bid of the token that the server holds afterwards
    due: bool  # Spyker: whether a synchronisation is due, as far as the server knows
    tokens: int  # in the whole world afterwards, held or in flight


class Watch:
    """Runs a scenario and writes down everything that happens in it."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.facts = []  # as the sink gets them
        self.steps = []
        self.scheduled = 0
        self.happened = []  # the time of each event, and as which one it was scheduled
        self.sent = defaultdict(list)  # by link: ("server" or "client", id) of the sender, then of the receiver
        self.arrived = defaultdict(list)  # by link: time and message
        self.answers = defaultdict(list)  # by server: the clients whose updates arrived, in that order
        self.folds = defaultdict(dict)  # Sync-Spyker: by synchronisation, by server: what the fold left
        self.tokens_in_flight = 0
        with ExitStack() as stack:
            for owner, name in (
                (Clock, "at"),
                (BareServerSimulation, "_perform"),
                (BareServerSimulation, "model_arrives"),
                (Processor, "receive"),
                (Processor, "_handle"),
                (Client, "trained"),
                (SyncSpyker, "fold"),
            ):
                stack.enter_context(patch.object(owner, name, self.around(getattr(self, name), getattr(owner, name))))
            task, engine = start_engine(scenario, workers=0)
            self.optima = task.optima
            with engine:
                self.summary = simulate(
                    scenario, task, engine, lambda t, fact, queue: self.facts.append((t, fact, queue))
                )

    @staticmethod
    def around(watcher, original):
        return lambda it, *arguments: watcher(original, it, *arguments)

    @property
    def n(self):
        return len(self.scenario.world.regions)

    def stated(self, kind):
        """The facts of one kind."""
        return [fact for _, fact, _ in self.facts if isinstance(fact, kind)]

    def peer_messages(self, kind):
        """The messages of one kind between servers: sender, receiver, message."""
        for ((_, sender), (to, receiver)), messages in self.sent.items():
            if to == "server":
                yield from ((sender, receiver, message) for message in messages if isinstance(message, kind))

    # Each stands in for the method of the same name.

    def at(self, original, clock, time, do, a, b):
        self.scheduled += 1
        number = self.scheduled

        def happen(a, b):
            self.happened.append((clock.now, number))
            do(a, b)

        original(clock, time, happen, a, b)

    def _perform(self, original, world, processor, actions):
        self.world, self.performed = world, list(actions)
        me = "server", processor.server.id
        for action in self.performed:
            if isinstance(action, ToClient):
                self.sent[me, ("client", action.client)].append(action.message)
            elif isinstance(action, ToServer):
                self.sent[me, ("server", action.server)].append(action.message)
                self.tokens_in_flight += isinstance(action.message, Token)
        original(world, processor, self.performed)

    def model_arrives(self, original, world, k, model):
        link = ("server", world.clients[k].server), ("client", k)
        self.arrived[link].append((world.clock.now, model))
        original(world, k, model)

    def receive(self, original, processor, sender, message):
        me, kind = processor.server.id, "client" if isinstance(message, Update) else "server"
        if not isinstance(message, str):  # a timer, which nobody sent
            self.arrived[(kind, sender), ("server", me)].append((processor.clock.now, message))
        if kind == "client":
            self.answers[me].append(sender)
        original(processor, sender, message)

    def trained(self, original, client, weights, *more):
        actions = original(client, weights, *more)
        self.sent[("client", client.id), ("server", client.server)] += [action.message for action in actions]
        return actions

    def _handle(self, original, processor):
        sender, message = processor.queue[0]
        assert len(self.steps) < EXPLOSION, "messages answer messages without end"
        self.tokens_in_flight -= isinstance(message, Token)
        original(processor)
        server, due = processor.server, False
        if isinstance(server, Spyker) and not isinstance(server, SyncSpyker):
            p = server.parameters
            due = max(server.ages) - min(server.ages) >= p.h_inter or server.age - server.age_prev >= p.h_intra
        held = [getattr(p.server, "token", None) for p in self.world.processors]
        self.steps.append(
            Step(
                time=processor.clock.now,
                server=server.id,
                sender=sender,
                message=message,
                actions=self.performed,
                age=server.age,
                version=server.version,
                token=getattr(held[server.id], "bid", None),
                due=due,
                tokens=self.tokens_in_flight + len(held) - held.count(None),
            )
        )

    def fold(self, original, server, models):
        original(server, models)
        assert server.id not in self.folds[server.bid], "folded twice"
        self.folds[server.bid][server.id] = server.weights.snapshot().tobytes(), server.age


def in_every_world(*algorithms, regions=1):
    """Make a test of a check: it must hold in many worlds and have had something to look at in some of them."""

    def decorate(check):
        @pytest.mark.parametrize("algorithm", algorithms)
        def test(algorithm):
            looked = 0

            @seed(zlib.crc32(check.__name__.encode()))  # other worlds for each check, the same ones each time
            @settings(
                max_examples=max(15, WORLDS // len(algorithms)),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(scenarios(algorithm, regions))
            @example(crowded(algorithm, bandwidth=0.5, mix=0))
            @example(crowded(algorithm, bandwidth=100, mix=9))
            def holds(scenario):
                nonlocal looked
                try:
                    looked += check(Watch(scenario))
                except AssertionError as error:
                    error.add_note(dump(scenario))
                    raise

            holds()
            assert looked, "nothing happened in any world"

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


# --- Spyker ----------------------------------------------------------------------------------------------------------


@in_every_world("spyker", regions=2)
def test_there_is_always_exactly_one_token(watch):
    assert all(step.tokens == 1 for step in watch.steps)
    return len(watch.stated(TokenArrived))


@in_every_world("spyker", regions=2)
def test_the_token_goes_round_and_only_its_holder_starts(watch):
    tokens, syncs = watch.stated(TokenArrived), watch.stated(SyncStarted)
    assert [fact.bid for fact in tokens] == list(range(2, len(tokens) + 2))
    assert [fact.bid for fact in syncs] == list(range(1, len(syncs) + 1))
    assert all(fact.server == (fact.bid - 1) % watch.n for fact in tokens + syncs)
    assert len(syncs) - len(tokens) in (0, 1)  # one token for each synchronisation that has ended
    return len(tokens)


@in_every_world("spyker", regions=2)
def test_the_holder_starts_when_it_is_due_and_passes_the_token_when_it_has_heard_from_all(watch):
    started, heard, passed = set(), defaultdict(set), 0
    for step in watch.steps:
        if isinstance(step.message, PeerModel):
            heard[step.server, step.message.bid].add(step.sender)
        for action in step.actions:
            if isinstance(action, RecordFact) and isinstance(action.fact, SyncStarted):
                started.add(action.fact.bid)
            if isinstance(action, ToServer) and isinstance(action.message, Token):
                passed += 1
                assert heard[step.server, action.message.bid] == set(range(watch.n)) - {step.server}
        if step.token is not None:
            assert heard[step.server, step.token] < set(range(watch.n)) - {step.server}, "a token that is not passed on"
            if step.due and isinstance(step.message, Update | Age | Token):
                assert step.token in started
    return passed


@in_every_world("spyker")
def test_no_client_waits_for_a_synchronisation(watch):
    updates = [step for step in watch.steps if isinstance(step.message, Update)]
    for step in updates:
        replies = [action for action in step.actions if isinstance(action, ToClient)]
        assert [reply.client for reply in replies] == [step.sender]
        assert (replies[0].message.age, replies[0].message.version) == (step.age, step.version)
    return len(updates) if watch.stated(SyncStarted) else 0


@in_every_world("spyker", regions=2)
def test_announcements_are_bounded(watch):
    """A server announces at most once per client update of its own, and at most once per ``h_inter`` of age.

    Each announcement is at least h_inter above the one before, so a server makes at most as many as its highest age
    holds h_inter. That age is bounded by the number of all updates, not of the server's own: merges make servers older,
    too. So n servers send at most n (n - 1) · updates / h_inter messages. It cannot do without the factor n: an update
    may age everybody and be announced by everybody, as in ``tests/scenarios/merged_age_is_announced.txt``.
    """
    h_inter, everything = watch.scenario.parameters.h_inter, len(watch.stated(UpdateApplied))
    own = Counter(fact.server for fact in watch.stated(UpdateApplied))
    announced = defaultdict(list)
    for fact in watch.stated(AgeAnnounced):
        announced[fact.server].append(fact.age)
    for server, ages in announced.items():
        assert len(ages) <= own[server]
        assert len(ages) * h_inter <= ages[-1] * NEARLY
        assert ages[-1] <= everything * NEARLY
        assert all(b - a >= h_inter for a, b in itertools.pairwise(ages))
    messages = len(list(watch.peer_messages(Age)))
    assert messages == (watch.n - 1) * sum(map(len, announced.values()))
    assert messages <= watch.n * (watch.n - 1) * everything / h_inter * NEARLY
    return messages


@in_every_world("spyker", regions=2)
def test_only_a_client_update_is_announced_and_never_by_the_holder(watch):
    holder, seen = 0, 0
    for step in watch.steps:
        if isinstance(step.message, Token):
            holder = step.server
        sent = [action.message for action in step.actions if isinstance(action, ToServer)]
        if any(isinstance(message, Age) for message in sent):
            seen += 1
            assert isinstance(step.message, Update)
            assert step.server != holder
        if any(isinstance(message, Token) for message in sent):
            holder = None
    return seen


# --- Spyker and Sync-Spyker ------------------------------------------------------------------------------------------


@in_every_world(*FLAT, regions=2)
def test_each_server_broadcasts_once_per_synchronisation(watch):
    models = Counter((message.bid, sender, receiver) for sender, receiver, message in watch.peer_messages(PeerModel))
    assert set(models.values()) <= {1}
    per_bid = Counter(bid for bid, _, _ in models)
    assert all(count <= watch.n * (watch.n - 1) for count in per_bid.values())
    for bid, sender in {(bid, sender) for bid, sender, _ in models}:
        assert {j for b, i, j in models if (b, i) == (bid, sender)} == set(range(watch.n)) - {sender}
    return len(models)


@in_every_world(*FLAT)
def test_updates_take_effect_in_the_order_of_their_arrival(watch):
    """Also those that Sync-Spyker stored for a while."""
    applied = defaultdict(list)
    for fact in watch.stated(UpdateApplied):
        applied[fact.server].append(fact.client)
    for server, clients in applied.items():
        assert clients == watch.answers[server][: len(clients)]
    return sum(map(len, applied.values()))


@in_every_world("sync-spyker", regions=2)
def test_a_fold_leaves_the_same_model_on_every_server(watch):
    for bid, results in watch.folds.items():
        assert len(set(results.values())) == 1, f"servers differ after synchronisation {bid}"
    for server in range(watch.n):
        mine = [bid for bid, results in watch.folds.items() if server in results]
        assert mine == list(range(1, len(mine) + 1))
    return sum(len(results) == watch.n for results in watch.folds.values())


# --- all algorithms --------------------------------------------------------------------------------------------------


@in_every_world(*COMPARED)
def test_versions_count_updates_and_never_fall(watch):
    versions = [0] * len(watch.world.processors)
    for step in watch.steps:
        facts = [action.fact for action in step.actions if isinstance(action, RecordFact)]
        applied = [fact.version for fact in facts if isinstance(fact, UpdateApplied)]
        versions[step.server] += len(applied)
        assert step.version == versions[step.server]
        assert applied == list(range(step.version - len(applied) + 1, step.version + 1))
    return sum(versions)


@in_every_world(*COMPARED)
def test_ages_are_finite_and_no_higher_than_all_updates_together(watch):
    applied = 0
    for step in watch.steps:
        applied += sum(
            isinstance(action, RecordFact) and isinstance(action.fact, UpdateApplied) for action in step.actions
        )
        assert math.isfinite(step.age)
        assert 0 <= step.age <= applied * NEARLY
    return applied


@in_every_world(*COMPARED)
def test_weights_are_between_0_and_1_and_rates_within_their_limits(watch):
    updates, merges = watch.stated(UpdateApplied), watch.stated(Merged)
    assert all(0 <= fact.weight <= 1 for fact in updates + merges)
    assert all(fact.staleness >= 0 for fact in updates)
    rate = watch.scenario.training.rate
    assert all(0 < fact.rate <= rate for fact in updates)
    return len(updates)


@in_every_world(*OF_THE_PAPER)
def test_models_stay_between_the_start_and_the_optima(watch):
    """Training, mixing and averaging are all means of what is there, so nothing can get out of the box around it.

    Adding up differences, or momentum, can.
    """
    slack = 1e-4 * np.abs(watch.optima).max()
    low, high = np.minimum(watch.optima.min(axis=0), 0) - slack, np.maximum(watch.optima.max(axis=0), 0) + slack
    models = [m.weights for messages in watch.sent.values() for m in messages if isinstance(m, Model | PeerModel)]
    assert np.logical_and(low <= models, models <= high).all()
    return len(models)


@in_every_world(*OF_THE_PAPER)
def test_links_are_fifo(watch):
    """What arrives on a link is what was sent on it, in the same order; only the last ones may still be in flight."""
    for link, arrivals in watch.arrived.items():
        assert len(arrivals) <= len(watch.sent[link])
        assert all(message is sent for (_, message), sent in zip(arrivals, watch.sent[link], strict=False))
        assert all(a <= b for (a, _), (b, _) in itertools.pairwise(arrivals))
    return sum(len(arrivals) > 1 for arrivals in watch.arrived.values())


@in_every_world(*OF_THE_PAPER)
def test_things_happen_in_the_order_of_time_and_then_of_scheduling(watch):
    assert watch.happened == sorted(watch.happened)
    times = [time for time, _ in watch.happened]
    return len(times) - len(set(times))


@in_every_world(*OF_THE_PAPER)
def test_nothing_happens_after_the_duration(watch):
    times = [time for time, _ in watch.happened] + [t for t, _, _ in watch.facts]
    assert max(times) <= watch.scenario.duration == watch.world.clock.now
    return len(watch.steps)


@in_every_world(*ALGORITHMS)  # those that only the race has are looked at here alone
def test_the_same_scenario_has_the_same_facts(watch):
    again = Watch(watch.scenario)
    assert [line(*entry) for entry in again.facts] == [line(*entry) for entry in watch.facts]
    assert again.summary == watch.summary
    return len(watch.facts)


@in_every_world(*COMPARED)
def test_a_longer_run_begins_like_a_shorter_one(watch):
    longer = Watch(dataclasses.replace(watch.scenario, duration=1.4 * watch.scenario.duration))
    short = [line(*entry) for entry in watch.facts if not isinstance(entry[1], Evaluated)]
    long = [line(*e) for e in longer.facts if e[0] <= watch.scenario.duration and not isinstance(e[1], Evaluated)]
    assert short == long
    return len(short)
