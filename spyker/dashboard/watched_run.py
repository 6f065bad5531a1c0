"""A run on the dashboard, finished or in progress: series, states and windows of events."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spyker.dashboard.fact_stream import MergedFacts, TimedFact, parts_of
from spyker.dashboard.fact_text import CONCERNS, describe
from spyker.dashboard.flights import flights
from spyker.dashboard.run_state import RunState, StateReducer, by_clients_payload, known_server, state_payload
from spyker.dashboard.series import BINS, MARKS, POINTS, ThinnedSeries, TimeBins, score_point
from spyker.dashboard.topology import RunTopology
from spyker.protocol.facts import SyncStarted, TokenArrived, UpdateApplied
from spyker.records import FACTS, SUMMARY, Evaluated, EvaluatedByClients, RunRecord, RunStarted

KEYFRAMES, FACTS_BETWEEN = 256, 400
EVENTS, FLIGHTS = 1500, 1200  # limits of a window
AHEAD = 0.5  # minimum seconds after a window that are searched for arrivals of messages sent in it
JUST_BEFORE = 1e-9


class Keyframe(NamedTuple):
    """The state at some offsets of the records."""

    t: float
    offsets: list[int]
    state: RunState


class WatchedRun:
    """A run. ``advance`` is called by one thread, all other methods by any thread."""

    def __init__(self, folders: Sequence[Path], starts: Sequence[RunStarted]) -> None:
        self.parts = parts_of(folders, starts)
        self.records = [RunRecord(part.folder) for part in self.parts]
        start = max(starts, key=lambda each: len(each.servers))  # servers that were added know of all
        self.world = RunTopology(start, self.records[0].scenario)
        self._identity = self._identities()
        self._fold, self._lock = StateReducer(self.world), threading.Lock()
        self._reading = MergedFacts(self.parts)
        self.state = RunState.first(self.world)
        self._keyframes = [Keyframe(-1.0, [0] * len(self.parts), self.state.copy())]
        self._between, self._next = FACTS_BETWEEN, FACTS_BETWEEN
        learners = [server.id for server in start.servers if server.clients is not None]
        self._bins = TimeBins(len(start.servers), learners, (self.world.duration or 0.1 * BINS) / BINS)
        self._scores: ThinnedSeries[list[Any]] = ThinnedSeries(POINTS)
        self._client_scores: ThinnedSeries[list[Any]] = ThinnedSeries(POINTS)
        self._marks: ThinnedSeries[tuple[float, str]] = ThinnedSeries(MARKS)
        self.first_holder: int | None = None
        self._starter: int | None = None  # the server that started the first exchange
        self.finished, self.changes = False, 0

    # --- Reading -----------------------------------------------------------------------------------------------------

    def _identities(self) -> list[tuple[int, int]]:
        found = []
        for part in self.parts:
            stat = (part.folder / FACTS).stat()
            found.append((stat.st_dev, stat.st_ino))
        return found

    def replaced(self) -> bool:
        """Return whether the records were deleted or replaced."""
        try:
            sizes = [(part.folder / FACTS).stat().st_size for part in self.parts]
            return self._identities() != self._identity or any(
                size < at for size, at in zip(sizes, self._reading.offsets, strict=True)
            )
        except OSError:
            return True

    def advance(self, facts: int = 20_000) -> bool:
        """Read at most ``facts`` new facts; return whether there were any."""
        ended = all((part.folder / SUMMARY).exists() for part in self.parts)
        with self._lock:
            before = self.state.facts
            for timed in self._reading.facts(wait=not ended):
                self._note(timed)
                if self.state.facts - before >= facts:
                    break
            else:
                if ended and not self.finished:
                    self.finished = True
                    self.changes += 1
            self.changes += self.state.facts > before
            return self.state.facts > before

    def _note(self, timed: TimedFact) -> None:
        state, fact = self.state, timed.fact
        if isinstance(fact, TokenArrived):
            if self.first_holder is None:
                servers = len(self.world.server_regions)
                self.first_holder = (fact.server - 1) % servers if self._starter is None else self._starter
            self._marks.add((round(timed.t, 6), "token"))
        elif isinstance(fact, SyncStarted) and state.token is None:
            self._starter = fact.server
        elif fact.kind in CONCERNS:
            self._marks.add((round(timed.t, 6), "concern"))
        self._fold.apply(state, timed.t, fact, timed.queue, timed.server)
        if isinstance(fact, Evaluated):
            self._add(self._scores, score_point(state, timed.t))
            self._bins.note(state)
        elif isinstance(fact, EvaluatedByClients) and fact.name == self.world.start.metric:
            if (found := by_clients_payload(state)) is not None:
                self._add(self._client_scores, [round(timed.t, 6), found["weightedMean"], found["worstDecile"]])
        else:
            server = known_server(fact)
            if server is not None:
                self._bins.server(state, server)
        if state.facts >= self._next:
            self._keyframes.append(Keyframe(state.t, self._reading.offsets, state.copy()))
            if len(self._keyframes) > KEYFRAMES:
                self._keyframes, self._between = self._keyframes[::2], 2 * self._between
            self._next = state.facts + self._between

    def _add(self, series: ThinnedSeries[list[Any]], point: list[Any]) -> None:
        """Add a point; in a deployment, scores of different servers within half an interval are one evaluation.

        Servers start at different times and write a score when it is known, so times are not ordered.
        """
        last = series.last
        if len(self.parts) > 1 and last is not None and point[0] < last[0] + 0.5 * self.world.start.interval:
            series.replace([max(point[0], last[0]), *point[1:]])
        else:
            series.add(point)

    # --- Queries -----------------------------------------------------------------------------------------------------

    def timeline(self) -> dict[str, Any]:
        """Return the series of the whole run."""
        with self._lock:
            now, state = self.state.t, self.state
            return {
                "end": now,
                "facts": state.facts,
                "finished": self.finished,
                "changes": self.changes,
                "hasToken": self.first_holder is not None,
                "scores": self._scores.points(),
                "clientScores": self._client_scores.points(),
                "marks": self._marks.points(),
                **self._bins.payload(now),
            }

    def present(self) -> dict[str, Any]:
        """Return the latest state."""
        with self._lock:
            return self._payload(self.state)

    def at(self, t: float) -> dict[str, Any]:
        """Return the state at a time, including the facts at that time."""
        keyframe = self._before(t)
        state = keyframe.state.copy()
        for timed in self._facts(keyframe, t):
            self._fold.apply(state, timed.t, timed.fact, timed.queue, timed.server)
        return self._payload(state) | {"t": t}

    def window(self, start: float, end: float | None = None, limit: int = EVENTS) -> dict[str, Any]:
        """Return state, events and messages in flight after ``start``, up to ``end`` or ``limit`` events.

        If there are more than ``limit`` events before ``end``, only every n-th update is included.
        """
        limit, world = max(1, min(limit, EVENTS)), self.world
        newest = math.inf if self.finished else self.state.t
        reach = max(AHEAD, world.longest)
        keyframe = self._before(start - reach)
        state = keyframe.state.copy()
        base: dict[str, Any] | None = None
        events, under_way = ThinnedList(limit), ThinnedList(FLIGHTS)
        stop = end
        for timed in self._facts(keyframe, None):
            if base is None and timed.t > start:
                base = self._payload(state) | {"t": start}
            if stop is None and len(events) >= limit and timed.t > state.t:
                stop = state.t
            if stop is not None and timed.t > stop + reach:
                break
            for flight in flights(world, state, timed.t, timed.fact, self.first_holder):
                if flight.arrived > start and (stop is None or flight.left <= stop):
                    under_way.add(flight, flight.kind in ("update", "answer"))
            self._fold.apply(state, timed.t, timed.fact, timed.queue, timed.server)
            if base is not None and (stop is None or timed.t <= stop):
                events.add(self._event(timed, state), end is not None and isinstance(timed.fact, UpdateApplied))
        base = base or (self._payload(state) | {"t": start})
        return {
            "from": start,
            "to": max(start, min(newest, max(state.t, end or 0.0) if stop is None else stop)),
            "state": base,
            "events": events.items,
            "every": events.every,
            "flights": [flight.payload() for flight in under_way.items if stop is None or flight.left <= stop],
        }

    def before(self, t: float, count: int) -> dict[str, Any]:
        """Return a window with the last ``count`` events before a time."""
        keyframe, times = self._before(t), deque[float](maxlen=max(1, min(count, EVENTS)))
        for timed in self._facts(keyframe, t - JUST_BEFORE):
            times.append(timed.t)
        if not times:
            return self.window(max(0.0, t - JUST_BEFORE), t)
        return self.window(min(times) - JUST_BEFORE, t)

    def _before(self, t: float) -> Keyframe:
        """Return the last keyframe before a time."""
        with self._lock:
            return self._keyframes[max(0, bisect_left(self._keyframes, t, key=lambda k: k.t) - 1)]

    def _facts(self, keyframe: Keyframe, until: float | None) -> Iterator[TimedFact]:
        """Yield the facts after a keyframe that were already read by :meth:`advance`."""
        with self._lock:
            left = self.state.facts - keyframe.state.facts
        for timed in MergedFacts(self.parts, keyframe.offsets).facts(wait=False):
            if left <= 0 or (until is not None and timed.t > until):
                return
            left -= 1
            yield timed

    def _payload(self, state: RunState) -> dict[str, Any]:
        """Return the JSON of a state, with the first token holder if the token has not moved."""
        found = state_payload(state, self.world)
        if state.token is None:
            found["token"] = self.first_holder
        return found

    def _event(self, timed: TimedFact, state: RunState) -> dict[str, Any]:
        """Return the JSON of an event: its description and the changed values."""
        fact = timed.fact
        event: dict[str, Any] = {
            "t": round(timed.t, 9),
            "kind": fact.kind,
            "text": describe(self.world, fact),
            "sums": [state.updates, state.syncs, state.bytes],
        }
        server = known_server(fact)
        if server is not None and 0 <= server < len(state.servers):
            event["server"] = server
            event["now"] = state.servers[server].payload()
        for key in ("client", "peer"):
            if isinstance(value := getattr(fact, key, None), int):
                event[key] = value
        if isinstance(fact, TokenArrived):
            event["token"] = fact.server
        if isinstance(fact, Evaluated):
            event["scores"] = score_point(state, timed.t)
        if isinstance(fact, EvaluatedByClients) and fact.name == self.world.start.metric:
            event["byClients"] = by_clients_payload(state)
        return event


class ThinnedList:
    """A list of approximately limited length, which keeps every n-th optional item."""

    def __init__(self, limit: int) -> None:
        self.items: list[Any] = []
        self.every = 1
        self._limit, self._seen, self._optional = limit, 0, deque[bool]()

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: Any, optional: bool) -> None:
        """Add an item."""
        if optional:
            self._seen += 1
            if self._seen % self.every:
                return
        self.items.append(item)
        self._optional.append(optional)
        if len(self.items) > 2 * self._limit and sum(self._optional) > self._limit:
            self.every *= 2
            number, chosen = 0, []
            for item, optional in zip(self.items, self._optional, strict=True):
                number += optional
                if not optional or number % 2 == 0:
                    chosen.append((item, optional))
            self.items, self._optional = [item for item, _ in chosen], deque(optional for _, optional in chosen)
