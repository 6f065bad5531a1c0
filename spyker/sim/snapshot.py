"""Everything that an emulated world knows between two events, as numbers and vectors, and back: a run that goes on from
there is, to the byte, the one that was never interrupted.

An event on the clock is a method of something in the world, and here each has a name. Trainings under way are kept as
what was submitted, and submitted again: their results follow from that.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import Any, Protocol

from spyker.engines.engine import TrainJob
from spyker.protocol.client import Client
from spyker.protocol.codec import Array, Sizes
from spyker.protocol.messages import Message
from spyker.protocol.server import Server
from spyker.protocol.state import ServerState, Stateful, Unpacker, pack
from spyker.protocol.weights import Weights
from spyker.records import Evaluated, MetricEvaluated
from spyker.sim.client_failures import ClientFailure
from spyker.sim.clock import Event
from spyker.sim.evaluator import Evaluator
from spyker.sim.processor import Processor
from spyker.sim.timers import SimTimers
from spyker.sim.world import BareServerSimulation, Simulation

ARRIVES, DONE, TIMER, MODEL, TRAINED, EVALUATE = "arrives", "done", "timer", "model", "trained", "evaluate"
COUNTS = ("updates", "updates_per_server", "synchronisations")
BYTES = ("bytes_down", "bytes_up", "bytes_between")


class SnapshotStore(Protocol):
    """Keeps what an interrupted run can go on from."""

    saved: ServerState | None
    """Where to go on from, if this run was interrupted before."""

    def due(self) -> bool:
        """Whether it is time to save."""

    def write(self, state: ServerState) -> None:
        """Keep a state in place of the last."""

    def give_up(self) -> None:
        """Try no more: a world like this cannot be saved."""


class SnapshotError(Exception):
    """A world that cannot be written down; says what stands in the way."""


def take(world: Simulation, evaluator: Evaluator) -> ServerState:
    """What is, between two events and with no evaluation under way."""
    if not isinstance(world, BareServerSimulation):
        raise SnapshotError("the scenario has an outage, and connections that break are not saved")
    if any(state is not None for state in world.states.values()):
        raise SnapshotError("its clients keep a state of their own, which is nothing but a pickle to us")
    try:
        return _Snapshot(world, evaluator).take()
    except TypeError as error:
        raise SnapshotError(str(error)) from None


def save(world: Simulation, evaluator: Evaluator, saves: SnapshotStore) -> None:
    """Save what is, if that is possible."""
    evaluator.settle()
    try:
        state = take(world, evaluator)
    except SnapshotError:
        saves.give_up()
    else:
        saves.write(state)


def restore_snapshot(state: ServerState, world: Simulation, evaluator: Evaluator) -> None:
    """Let a world that has not begun be what another was."""
    assert isinstance(world, BareServerSimulation)
    _Snapshot(world, evaluator).restore(state)


class _Snapshot:
    """One world, on its way out or in."""

    def __init__(self, world: BareServerSimulation, evaluator: Evaluator) -> None:
        self.world, self.evaluator, self.clock, self.links = world, evaluator, world.clock, world.links
        self.vectors: dict[str, Array] = {}

    def take(self) -> ServerState:
        world, links, failures = self.world, self.links, self.world.failures
        numbers = {
            "clock": [self.clock.now, self.clock.happened, self.clock.scheduled],
            "events": [[e[0], e[1], *self._named(e)] for e in self.clock.pending()],
            "counts": {name: getattr(world, name) for name in COUNTS},
            "updates_per_client": list(world.updates_per_client),
            "messages": dict(world.messages),
            "links": [list(links.down_free), list(links.up_free), [[*k, v] for k, v in links.peer_free.items()]],
            "bytes": {name: getattr(links, name) for name in BYTES},
            "queues": [[p.longest, p.busy, self._pack(list(p.queue), f"queue.{p.id}")] for p in world.processors],
            "servers": [self._attributes(p.server, f"server.{p.id}") for p in world.processors],
            "clients": [self._attributes(client, f"client.{client.id}") for client in world.clients],
            "evaluator": [
                self.evaluator.turn,
                self.evaluator.given,
                [[t, *astuple(result)] for t, result in self.evaluator.history],
            ],
            "measured": [list(astuple(each)) for each in self.evaluator.measured],
            "reports": [[k, dict(metrics)] for k, metrics in world.reports.items()],
            "failures": failures and [failures.trained, [astuple(each) for each in failures.by_client.values()]],
        }
        return ServerState(numbers, self.vectors)

    def _pack(self, value: object, name: str) -> Any:
        return pack(value, name, self.vectors)

    def _named(self, event: Event) -> list[Any]:
        """An event by name, and what it needs."""
        _, number, do, a, b = event
        whose: Any = getattr(do, "__self__", None)
        if isinstance(whose, Processor):
            return [DONE, whose.id] if do == whose.done else [ARRIVES, whose.id, a, self._pack(b, f"event.{number}")]
        if isinstance(whose, SimTimers):
            owner = next(p.id for p in self.world.processors if p.timers is whose)
            return [TIMER, owner, a, whose.runs(a, b)]
        if do == self.world.model_arrives:
            return [MODEL, a, self._pack(b, f"event.{number}")]
        if do == self.world.training_ends:
            return [TRAINED, a.id, self._pack(b.weights, f"event.{number}"), b.rate, b.step, b.age]
        if do == self.evaluator.evaluate:
            return [EVALUATE, list(b)]
        raise TypeError(f"nobody knows how to save {do!r}, which is to happen at {event[0]:g} s")

    def _attributes(self, node: Server | Client, name: str) -> dict[str, Any]:
        return {key: self._pack(getattr(node, key), f"{name}.{key}") for key in changing(node)}

    def restore(self, state: ServerState) -> None:
        world, links, numbers = self.world, self.links, state.numbers
        servers = [processor.server for processor in world.processors]
        kinds: dict[str, type[Message]] = {kind.kind: kind for client in world.clients[:1] for kind in client.receives}
        for server in servers:  # one kind of server may hear what another says
            kinds |= server.kinds()
        self.saved = Unpacker(state.vectors, kinds, Sizes(servers[0].weights.snapshot().size, servers[0].n))
        for name in COUNTS:
            setattr(world, name, numbers["counts"][name])
        world.updates_per_client = array("q", numbers["updates_per_client"])
        world.messages.update(numbers["messages"])
        down, up, between = numbers["links"]
        links.down_free, links.up_free = array("d", down), array("d", up)
        links.peer_free = {(i, j): free for i, j, free in between}
        for name in BYTES:
            setattr(links, name, numbers["bytes"][name])
        for processor, (longest, busy, queue) in zip(world.processors, numbers["queues"], strict=True):
            processor.longest, processor.busy = longest, busy
            processor.queue.extend(self.saved.unpack(queue))
        nodes: list[Server | Client] = [*servers, *world.clients]
        for node, kept in zip(nodes, [*numbers["servers"], *numbers["clients"]], strict=True):
            self._give(node, kept)
        self.evaluator.turn, self.evaluator.given, history = numbers["evaluator"]
        self.evaluator.history.extend((t, Evaluated(*result)) for t, *result in history)
        self.evaluator.measured = [MetricEvaluated(*each) for each in numbers["measured"]]
        world.reports.update((k, metrics) for k, metrics in numbers["reports"])
        if world.failures is not None:
            world.failures.trained, failed = numbers["failures"]
            world.failures.by_client |= {each[0]: ClientFailure(*each) for each in failed}
        now, happened, scheduled = numbers["clock"]
        self.clock.go_on(now, happened, scheduled, self._events(numbers["events"]))

    def _give(self, node: Server | Client, kept: dict[str, Any]) -> None:
        for key, packed in kept.items():
            value, current = self.saved.unpack(packed), getattr(node, key, None)
            if isinstance(current, Weights):
                current.replace(value)
            elif isinstance(current, Stateful):
                current.restore(value)
            else:
                setattr(node, key, value)

    def _events(self, named: list[list[Any]]) -> Iterator[Event]:
        for time, number, name, *what in named:
            yield (time, number, *self._event(name, time, *what))

    def _event(self, name: str, time: float, *what: Any) -> tuple[Callable[[Any, Any], None], Any, Any]:
        world, unpack = self.world, self.saved.unpack
        match name, what:
            case "done", [i]:
                return world.processors[i].done, None, None
            case "arrives", [i, sender, message]:
                return world.processors[i].receive, sender, unpack(message)
            case "timer", [i, timer, runs]:
                return world.processors[i].timers.due, timer, world.processors[i].timers.mark(timer, runs=runs)
            case "model", [k, message]:
                return world.model_arrives, k, unpack(message)
            case "trained", [k, weights, rate, step, age]:
                job = TrainJob(k, unpack(weights), rate, step, age=age)
                world.engine.submit(job, time)
                return world.training_ends, world.clients[k], job
            case "evaluate", [servers]:
                return self.evaluator.evaluate, world, servers
        raise ValueError(f"{name} is no event of this version")


def changing(node: Server | Client) -> list[str]:
    """What a node knows beyond what it was given: all of its attributes that are not part of its making."""
    slots = [name for kind in type(node).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*slots, *getattr(node, "__dict__", ())]
    given = node.GIVEN | {"_actions"} if isinstance(node, Server) else frozenset({"id", "server"})
    return [name for name in names if name not in given and not callable(getattr(node, name))]
