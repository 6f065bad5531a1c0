"""A stage on which a script moves the servers of an algorithm by hand.

There is no time here. Messages between servers lie in flight until the script delivers them; each ordered pair of
servers is a FIFO link. A client gets what its server sends at once and answers when the script says so. Commands:

``servers 3 algorithm=spyker clients=2,1,1 h-inter=2``
    Begin anew: so many servers, and so many clients for each, numbered through. Also understood are ``sizes`` (data
    points, one number per client), ``weights`` (W⁰, by default ``[0]``), ``rate`` (η_init), ``seed`` and every
    parameter of the algorithm. HierFAVG gets a further server, ``cloud``.
``update client=0 weights=[1]``
    Client 0 has trained the last model that it received, and its server handles the answer. With ``version=7`` it
    claims to have trained that one instead.
``join client=7 server=0 size=1``
    A new client registers.
``leave client=7``
    A client says goodbye, or its server gave it up.
``expire round server=0``
    A timer of server 0 that runs has run out.
``deliver 0->1``
    The oldest message in flight from server 0 to server 1 is handled.
``deliver all``
    Messages are handled until none is in flight, always the one that was sent first.
``state``
    Show every server, what is in flight, and the clients that have no model to train.

In a trace, ``0 <- 1: …`` says that server 0 handles a message of server 1. What it does stands below it, in order:
``-> 1: …`` is a message sent, ``fact: …`` one recorded, ``state: …`` what became of its model. Numbers are rounded to
four decimals. A command may go on in the next line after a backslash.

A script that begins with ``nodes`` in place of ``servers`` moves whole server processes; see ``node_scripts.py``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from every_algorithm import ALGORITHMS

from spyker.algorithms.fedavg import FedAvg
from spyker.algorithms.fedbuff import FedBuff
from spyker.algorithms.hierfavg import Cloud
from spyker.algorithms.spyker import Spyker
from spyker.algorithms.stride import Stride
from spyker.algorithms.sync_spyker import SyncSpyker
from spyker.config.scenario import parse_value
from spyker.config.sections import read
from spyker.placement import Topology
from spyker.protocol.messages import (
    Action,
    Age,
    Join,
    Leave,
    RecordFact,
    Requeue,
    StartTimer,
    StopTimer,
    ToClient,
    ToServer,
)
from spyker.protocol.server import Server, Setup

SEPARATOR = "----"
KINDS = {Age: "announcement"}


def run(script: str) -> str:
    """The script with the traces that its commands have now. Whatever else stands in it stays as it is."""
    stage, result = stage_for(script), []
    lines = iter(script.splitlines())
    for line in lines:
        result.append(line)
        if not line.strip() or line.startswith("#"):
            continue
        while line.endswith("\\"):
            result.append(next(lines))
            line = line[:-1] + result[-1]
        if next(lines, None) != SEPARATOR:
            raise ValueError(f"no {SEPARATOR} below {line!r}")
        for _ in iter(lambda: next(lines, "").strip(), ""):
            pass  # the old trace, which ends with an empty line
        result += [SEPARATOR, *stage.execute(line), ""]
    return "\n".join(result).rstrip() + "\n"


def stage_for(script: str) -> Stage:
    """Bare servers or, if the first command wants them, whole processes."""
    first = next((line for line in script.splitlines() if line.strip() and not line.startswith("#")), "")
    if first.startswith("nodes"):
        from node_scripts import NodeStage  # it is a kind of Stage

        return NodeStage()
    return Stage()


class Stage:
    """Servers, clients and the messages in flight."""

    def execute(self, command: str) -> list[str]:
        """Execute one command and return its trace."""
        self.trace: list[str] = []
        verb, *words = re.findall(r"[\w-]+=\[[^]]*\]|\S+", command)
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if not self.command(verb, plain, named):
            raise ValueError(f"cannot understand {command!r}")
        return self.trace

    def command(self, verb: str, plain: list[str], named: dict[str, str]) -> bool:
        """Execute one command, if there is such a command."""
        match verb, plain:
            case "servers", [count]:
                self.begin(int(count), **named)
            case "update", []:
                self.update(**named)
            case "join", []:
                self.join(**named)
            case "leave", []:
                self.leave(**named)
            case "deliver", [link]:
                self.deliver(link, **named)
            case "expire", [timer]:
                self.expire(timer, **named)
            case "state", []:
                self.state(**named)
            case _:
                return False
        return True

    # --- commands --------------------------------------------------------------------------------------------------

    def begin(
        self,
        count: int,
        *,
        clients: str,
        algorithm: str = "spyker",
        sizes: str = "",
        weights: str = "[0]",
        rate: str = "0.05",
        seed: str = "0",
        **parameters: str,
    ) -> None:
        chosen = ALGORITHMS[algorithm]
        counts = [int(number) for number in clients.split(",")]
        if len(counts) != count or (chosen.topology is Topology.SINGLE and count != 1):
            raise ValueError(f"{count} servers, {len(counts)} numbers of clients, {chosen.topology.value}")
        homes = [i for i, number in enumerate(counts) for _ in range(number)]
        points = [int(size) for size in sizes.split(",")] if sizes else [1] * len(homes)
        pairs = list(zip(homes, enumerate(points), strict=True))
        rosters = [dict(entry for home, entry in pairs if home == i) for i in range(count)]
        table = {key: parse_value(value) for key, value in parameters.items()}
        given = read(chosen.Parameters, table, algorithm)
        setup = Setup(count, len(homes), vector(weights), float(rate), given, int(seed))
        self.count, self.client = count, chosen.client
        rosters += [{}] * (chosen.topology is Topology.CLOUD)
        self.play(rosters, lambda i, roster: chosen.create(i, setup, roster))

    def play(self, rosters: list[dict[int, int]], build: Callable[[int, dict[int, int]], Server]) -> None:
        """Everybody is there, and begins."""
        self.servers = [build(i, roster) for i, roster in enumerate(rosters)]
        self.clients = {k: self.client(k, i) for i, roster in enumerate(rosters) for k in roster}
        self.idle = set(self.clients)
        self.running: set[tuple[int, str]] = set()  # timers, with their servers
        self.in_flight: list[tuple[int, int, Any]] = []  # sender, receiver, message, in the order of sending
        for server in self.servers:
            self.trace.append(f"{self.name(server.id)} starts")
            self.perform(server, server.start())

    def update(self, *, client: str, weights: str, version: str = "") -> None:
        k = int(client)
        (answer,) = self.clients[k].trained(vector(weights))
        message = dataclasses.replace(answer.message, version=int(version)) if version else answer.message
        self.idle.add(k)
        self.handle(answer.server, k, message, f"client {k}")

    def join(self, *, client: str, server: str, size: str = "1") -> None:
        k, home = int(client), int(server)
        self.clients[k] = self.client(k, home)
        self.idle.add(k)
        self.handle(home, k, Join(int(size)), f"client {k}")

    def leave(self, *, client: str) -> None:
        k = int(client)
        self.idle.discard(k)
        self.handle(self.clients[k].server, k, Leave(), f"client {k}")

    def expire(self, timer: str, *, server: str) -> None:
        whose = self.servers[int(server)]
        self.running.remove((whose.id, timer))
        before = model_of(whose)
        self.trace.append(f"{self.name(whose.id)} <- timer {timer}")
        self.react(whose, whose.expire(timer), before)

    def deliver(self, link: str) -> None:
        if link == "all":
            while self.in_flight:
                self.deliver_at(0)
            return
        pairs = [f"{self.name(sender)}->{self.name(receiver)}" for sender, receiver, _ in self.in_flight]
        self.deliver_at(pairs.index(link))

    def state(self) -> None:
        for server in self.servers:
            self.trace.append(f"{self.name(server.id)}: {model_of(server)} {extras_of(server)}".rstrip())
        for sender, receiver, message in self.in_flight:
            self.trace.append(f"in flight {self.name(sender)}->{self.name(receiver)}: {describe(message)}")
        if self.idle:
            self.trace.append(f"without a model: {show(sorted(self.idle))}")

    # --- what they have in common ----------------------------------------------------------------------------------

    def name(self, server: int) -> str:
        return str(server) if server < self.count else "cloud"

    def deliver_at(self, position: int) -> None:
        sender, receiver, message = self.in_flight.pop(position)
        self.handle(receiver, sender, message, self.name(sender))

    def handle(self, receiver: int, sender: int, message: object, origin: str) -> None:
        server = self.servers[receiver]
        before = model_of(server)
        self.trace.append(f"{self.name(receiver)} <- {origin}: {describe(message)}")
        actions = server.handle(sender, message)
        self.react(server, actions, before)
        for action in actions:
            if isinstance(action, Requeue):  # nothing else waits here, so the head of the queue is right now
                for k, stored in action.messages:
                    self.handle(receiver, k, stored, f"client {k}, stored")

    def react(self, server: Server, actions: Iterable[Action], before: str) -> None:
        self.perform(server, actions)
        if model_of(server) != before:
            self.trace.append(f"  state: {model_of(server)}")

    def perform(self, server: Server, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case ToClient(k, message):
                    self.clients[k].handle(server.id, message)
                    self.idle.discard(k)
                    self.trace.append(f"  -> client {k}: {describe(message)}")
                case ToServer(receiver, message):
                    self.in_flight.append((server.id, receiver, message))
                    self.trace.append(f"  -> {self.name(receiver)}: {describe(message)}")
                case StartTimer(timer, seconds):
                    self.running.add((server.id, timer))
                    self.trace.append(f"  timer {timer}: {show(seconds)} s")
                case StopTimer(timer):
                    self.running.discard((server.id, timer))
                case RecordFact(fact):
                    self.trace.append(f"  fact: {describe(fact, fact.kind, leave_out='server')}")
                    if getattr(fact, "server", server.id) != server.id:
                        raise AssertionError(f"server {server.id} states a fact about another: {fact}")


# --- how things look -------------------------------------------------------------------------------------------------


def vector(text: str) -> np.ndarray:
    """``[1, 2]`` as weights."""
    return np.array([float(number) for number in text.strip("[]").split(",")], np.float32)


def show(value: object) -> str:
    """A number with up to four decimals, or a list of such."""
    if isinstance(value, float | np.floating):
        return f"{round(float(value), 4) + 0.0:.4f}".rstrip("0").rstrip(".")  # + 0.0: there is no -0
    if isinstance(value, list | tuple | np.ndarray):
        return f"[{' '.join(map(show, value))}]"
    return str(value)


def describe(thing: object, kind: str = "", leave_out: str = "") -> str:
    """A message or a fact: its kind and all of its fields that say something."""
    kind = kind or KINDS.get(type(thing), type(thing).kind)
    fields = [field.name for field in dataclasses.fields(thing) if field.name != leave_out]
    fields = [name for name in fields if getattr(thing, name) is not None]
    return " ".join([kind, *(f"{name}={show(getattr(thing, name))}" for name in fields)])


def model_of(server: Server) -> str:
    """What every server has. A snapshot would protect the weights, also where the server itself forgot to."""
    return f"weights={show(server.weights._vector)} age={show(server.age)} version={server.version}"


def extras_of(server: Server) -> str:
    """What only the servers of an algorithm have."""
    return " ".join(text for text in (special_of(server), memory_of(server)) if text)


def memory_of(server: Server) -> str:
    """Momentum, where there is some."""
    momentum = getattr(server, "momentum", None)
    return "" if momentum is None else f"momentum={show(momentum._vector)}"


def special_of(server: Server) -> str:
    """What a server waits for, counts and has heard."""
    match server:
        case SyncSpyker():
            text = f"count={server.count} synchronisation={server.bid}"
            if server.waiting:
                text += f" waiting, models={show(sorted(server.models[server.bid]))}"
            return text + (f" stored={show([k for k, _ in server.stored])}" if server.stored else "")
        case Spyker():
            text = f"ages={show(server.ages)} prev={show(server.age_prev)} announced={show(server.age_announced)}"
            text += f" u={show(list(server.updates.values()))}"
            if server.token is not None:
                text += f" token={server.token.bid}"
            return text + (f" synchronising, heard={show(sorted(server.heard))}" if server.ongoing_synchro else "")
        case Stride():
            text = f"rounds={server.round} answered={show(sorted(server.answered))} latest={server.latest}"
            text += f" token={server.bid}" if server.holds else ""
            text += f" exchanging, heard={show(sorted(server.heard))}" if server.exchanging else ""
            return text + (f" absent={show(sorted(server.absent))}" if server.holds and server.absent else "")
        case FedBuff():
            return f"collected={server.count} sum={show(server.sum._vector)}"
        case FedAvg():
            return f"rounds={server.round} awaited={show(sorted(server.awaited))}"
        case Cloud():
            return f"rounds={server.round} models={show(sorted(server.models))}"
    return ""
