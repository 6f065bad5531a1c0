"""Invariants of the servers' records after a drill."""

from __future__ import annotations

from collections import Counter, defaultdict

from chaos.drill.deployed import Deployed
from chaos.drill.report import Report
from chaos.drill.server_records import ServerRecord, ServerRecords
from chaos.wan.deployment import server_place
from spyker.protocol.facts import SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.server import epoch_of
from spyker.records import ServerResumed

ALL = "all"


def check(deployed: Deployed, codes: dict[int, int], report: Report) -> None:
    """Check the records, after the servers have ended with these exit codes."""
    records = deployed.records
    one_token(records, report)
    survivors = [record for record in records.servers if record.destroyed is None]
    broken = [text for record in records.servers for text in breaks(record)]  # lost servers had survived earlier faults
    updates = sum(1 for record in records.servers for _ in record.facts(UpdateApplied))
    kept = sum(len(record.applied_updates()) for record in survivors)
    report.add(ALL, "updates applied", f"{updates:,}; {kept:,} are in the servers that were there in the end")
    report.add(ALL, "gaps and repetitions in the versions of survivors", str(len(broken)), "0", not broken)
    unsaved = not_saved(deployed, codes)
    report.add(
        ALL, "updates of survivors that are missing from their disks in the end", str(unsaved), "0", unsaved == 0
    )
    twice, vanished, trainings = trainings_counted(deployed)
    report.add(ALL, "trainings of clients, by their own count", f"{trainings:,}")
    report.add(ALL, "of these, applied twice", str(twice), "0", twice == 0)
    report.add(ALL, "of these, handed in to a survivor and applied nowhere", str(vanished), "0", vanished == 0)
    servers = sorted({record.server for record in records.servers})
    reset = sum(len(deployed.log(server_place(i), "reset")) for i in servers)
    report.add(ALL, "servers that gave up a state which was whole", str(reset), "0", reset == 0)
    ended = "; ".join(deployed.ended) or "nothing"
    report.add(ALL, "processes that ended unasked", ended, "nothing", not deployed.ended)


def one_token(records: ServerRecords, report: Report) -> None:
    """Check that each bid belongs to one server: the one that held the token with this bid."""
    holders: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for record in records.servers:
        bids = [fact.bid for _, fact in record.facts(TokenArrived)] + [
            fact.bid for _, fact in record.facts(SyncStarted)
        ]
        for bid in bids:
            holders[bid].add((record.server, record.number))
    doubled = sum(len(who) > 1 for who in holders.values())
    epochs = {epoch_of(bid) for bid in holders}
    report.add(ALL, "epochs with a token, and its hops", f"{len(epochs)}, {len(holders):,}")
    report.add(ALL, "hops of a token at which two servers had it", str(doubled), "0", doubled == 0)


def breaks(record: ServerRecord) -> list[str]:
    """Return the gaps in a server's versions, except those of restarts, which record the loss."""
    version, found = 0, []
    for _, fact in record.facts_read:
        if isinstance(fact, UpdateApplied):
            if fact.version != version + 1:
                found.append(f"server {record.server}: {fact.version} after {version}")
            version = fact.version
        elif isinstance(fact, ServerResumed):
            if version - fact.version != fact.lost_updates:
                found.append(f"server {record.server}: {fact.lost_updates} lost from {version} to {fact.version}")
            version = fact.version
    return found


def not_saved(deployed: Deployed, codes: dict[int, int]) -> int:
    """Return how many updates are in the records of cleanly stopped servers, but not in their last checkpoints."""
    missing = 0
    for i, code in codes.items():
        applied = max((u.version for _, u, _ in deployed.records.of(i).applied_updates()), default=0)
        stopped = deployed.log(server_place(i), "stopped")
        saved = stopped[-1]["saved_version"] if stopped and code == 0 else 0
        missing += abs(applied - saved)
    return missing


def trainings_counted(deployed: Deployed) -> tuple[int, int, int]:
    """Return the number of trainings that were applied twice, of lost ones, and of all.

    A client numbers its trainings, and drops an update only when it reconnects to a server that does not need it. So
    no number is missing between two updates of a client in one server's record, unless the client reconnected.
    """
    applied: Counter[tuple[int, int]] = Counter()
    last: dict[int, int] = {}
    vanished = 0
    arrivals: dict[int, list[float]] = defaultdict(list)
    for path in deployed.folder.glob("clients-*.log"):
        for line in deployed.log(path.stem, "attending"):
            arrivals[line["client"]].append(line["time"])
    for record in deployed.records.servers:
        before: dict[int, tuple[float, int]] = {}
        for at, update, step in record.applied_updates():
            if step is None:
                continue
            k = update.client
            applied[k, step] += 1
            last[k] = max(step, last.get(k, -1))
            if k in before:
                since, earlier = before[k]
                if not any(since - 1 <= arrival <= at for arrival in arrivals[k]):
                    vanished += step - earlier - 1
            before[k] = at, step
    twice = sum(count - 1 for count in applied.values())
    return twice, vanished, sum(step + 1 for step in last.values())
