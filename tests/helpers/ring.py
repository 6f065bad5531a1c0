"""Records of a ring of servers, made by hand: the token goes round, models travel, clients are taken in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recording import started

from spyker.protocol.facts import AgeAnnounced, Fact, Merged, SyncStarted, TokenArrived, UpdateApplied
from spyker.records import Evaluated, RecordWriter, RunStarted, ServerPlace

LATENCY = 0.1
REGIONS = ("here", "there", "yonder")


def scenario(regions: tuple[str, ...] = REGIONS, clients: int = 4) -> str:
    """The file that such a record has."""
    rows = [[1 if a == b else 1000 * LATENCY for b in regions] for a in regions]
    return (
        'algorithm = "spyker"\nseed = 1\nduration = 4.0\n\n[task]\nname = "quadratic"\n\n[world]\n'
        f"regions = {json.dumps(list(regions))}\nclients = {[clients] * len(regions)}\nlatency-ms = {rows}\n\n"
        "[spyker]\nh-inter = 5.0\n"
    )


def start(regions: tuple[str, ...] = REGIONS, clients: int = 4, **changes: Any) -> RunStarted:
    """The first fact."""
    servers = [ServerPlace(i, name, clients) for i, name in enumerate(regions)]
    return started(regions=list(regions), servers=servers, clients=clients * len(regions), **changes)


def judged_all(updates: int, scores: list[float]) -> Evaluated:
    """An evaluation of all servers."""
    mean = sum(scores) / len(scores)
    return Evaluated(updates, 1000 * updates, mean, min(scores), max(scores), mean, scores)


def update(server: int, client: int, age: float, staleness: float = 0.0) -> UpdateApplied:
    """An update."""
    return UpdateApplied(server, client, staleness, 0.5, age, int(age), 0.1)


def round_of_the_token() -> list[tuple[float, Fact]]:
    """The token reaches server 1 at 1.0, server 2 at 2.0 and server 0 at 3.0."""
    facts: list[tuple[float, Fact]] = [(0.0, judged_all(0, [0.1, 0.1, 0.1]))]
    age = [0.0, 0.0, 0.0]
    for step in range(1, 40):
        t = step / 10
        who = step % 3
        age[who] += 1
        facts.append((t, update(who, 4 * who + step % 4, age[who], staleness=float(step % 5))))
        if step in (5, 15, 25):
            holder, bid = step // 10, step // 10 + 1
            facts.append((t, SyncStarted(holder, bid)))
            others = [i for i in range(3) if i != holder]
            facts += [(t + LATENCY, Merged(i, holder, bid, 0.5, age[i])) for i in others]
        if step in (10, 20, 30):
            facts.append((t, TokenArrived(step // 10 % 3, step // 10 + 1)))
        if step % 10 == 7:
            facts.append((t, AgeAnnounced(who, age[who])))
        if step % 10 == 0:
            facts.append((t, judged_all(step, [0.1 + step / 100, 0.2 + step / 100, 0.3 + step / 100])))
    return sorted(facts, key=lambda fact: fact[0])


def write_ring(folder: Path, *, finished: bool = True, regions: tuple[str, ...] = REGIONS, **changes: Any) -> Path:
    """A record of it."""
    writer = RecordWriter(folder, scenario(regions), at_once=True)
    writer.write(0.0, start(regions, **changes))
    for t, fact in round_of_the_token():
        writer.write(t, fact, 2 if isinstance(fact, UpdateApplied) else None)
    writer.close({"finished": True, "synchronisations": 3} if finished else None)
    return folder


def write_crowd(folder: Path, facts: int, clients: int = 1000, *, merges: bool = False) -> Path:
    """A long record: so many facts of so many clients, and, if wanted, servers that merge all the time."""
    each = clients // 3
    writer = RecordWriter(folder, scenario(clients=each))
    writer.write(0.0, start(clients=each))
    age = [0.0, 0.0, 0.0]
    for i in range(1, facts):
        t = i / 1000
        who = (i * 7) % 3
        if i % 500 == 0:
            writer.write(t, judged_all(i, [i / facts, i / facts, i / facts]))
        elif i % 700 == 0:
            writer.write(t, TokenArrived((i // 700) % 3, i // 700))
        elif merges and i % 20 == 0:
            writer.write(t, Merged(who, (who + 1) % 3, 1 + i // 700, 0.5, age[who]))
        else:
            age[who] += 1
            writer.write(t, update(who, who * each + (i * 13) % each, age[who], float(i % 11)), 1 + i % 4)
    writer.close({"finished": True, "synchronisations": 0})
    return folder
