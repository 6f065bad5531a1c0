"""What must hold of everything that was written down, whatever happened."""

from __future__ import annotations

from collections import Counter, defaultdict

from chaos.drill.book import Book, Life
from chaos.drill.deployed import Deployed
from chaos.drill.report import Report
from chaos.wan.deployment import server_place
from spyker.protocol.facts import SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.server import epoch_of
from spyker.records import ServerResumed

ALL = "all"


def check(deployed: Deployed, codes: dict[int, int], report: Report) -> None:
    """Look at everything, after the servers have ended with these exit codes."""
    book = deployed.book
    one_token(book, report)
    survivors = [life for life in book.lives if life.destroyed is None]
    broken = [text for life in book.lives for text in breaks(life)]  # who was lost had survived others before
    updates = sum(1 for life in book.lives for _ in life.facts(UpdateApplied))
    kept = sum(len(life.held()) for life in survivors)
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
    servers = sorted({life.server for life in book.lives})
    anew = sum(len(deployed.log(server_place(i), "reset")) for i in servers)
    report.add(ALL, "servers that gave up a state which was whole", str(anew), "0", anew == 0)
    ended = "; ".join(deployed.ended) or "nothing"
    report.add(ALL, "processes that ended unasked", ended, "nothing", not deployed.ended)


def one_token(book: Book, report: Report) -> None:
    """Every number of a synchronisation belongs to one server: who had the token with that number."""
    holders: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for life in book.lives:
        bids = [fact.bid for _, fact in life.facts(TokenArrived)] + [fact.bid for _, fact in life.facts(SyncStarted)]
        for bid in bids:
            holders[bid].add((life.server, life.number))
    doubled = sum(len(who) > 1 for who in holders.values())
    epochs = {epoch_of(bid) for bid in holders}
    report.add(ALL, "epochs with a token, and its hops", f"{len(epochs)}, {len(holders):,}")
    report.add(ALL, "hops of a token at which two servers had it", str(doubled), "0", doubled == 0)


def breaks(life: Life) -> list[str]:
    """Where the versions of a server do not rise by one. A restart goes back to what was saved, and says how far."""
    version, found = 0, []
    for _, fact in life.told:
        if isinstance(fact, UpdateApplied):
            if fact.version != version + 1:
                found.append(f"server {life.server}: {fact.version} after {version}")
            version = fact.version
        elif isinstance(fact, ServerResumed):
            if version - fact.version != fact.lost_updates:
                found.append(f"server {life.server}: {fact.lost_updates} lost from {version} to {fact.version}")
            version = fact.version
    return found


def not_saved(deployed: Deployed, codes: dict[int, int]) -> int:
    """How many updates are in the records of servers that ended in good order, but not in their last checkpoints."""
    missing = 0
    for i, code in codes.items():
        applied = max((u.version for _, u, _ in deployed.book.of(i).held()), default=0)
        stopped = deployed.log(server_place(i), "stopped")
        saved = stopped[-1]["saved_version"] if stopped and code == 0 else 0
        missing += abs(applied - saved)
    return missing


def trainings_counted(deployed: Deployed) -> tuple[int, int, int]:
    """How many trainings were applied twice, how many vanished, and how many there were.

    A client numbers its trainings, and gives one up only when it comes to a server anew that does not want it. So
    between two updates of a client in one server's record no number may be missing, unless it came anew in between.
    """
    applied: Counter[tuple[int, int]] = Counter()
    last: dict[int, int] = {}
    vanished = 0
    arrivals: dict[int, list[float]] = defaultdict(list)
    for path in deployed.folder.glob("clients-*.log"):
        for line in deployed.log(path.stem, "attending"):
            arrivals[line["client"]].append(line["time"])
    for life in deployed.book.lives:
        before: dict[int, tuple[float, int]] = {}
        for at, update, step in life.held():
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
