"""The drills: one function per fault. Each leaves a working deployment for the next."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from chaos.drill.deployed import Deployed
from chaos.drill.report import Loss, Report, seconds
from chaos.wan.deployment import clients_place, server_place
from spyker.cli.codes import FENCED
from spyker.net.checkpoints import latest
from spyker.protocol.facts import EpochStarted, SyncStarted, UpdateApplied
from spyker.records import ServerResumed

LIMIT = 30.0
"""Seconds within which the remaining servers must synchronise again."""
PATIENCE = 90.0
"""Seconds to wait for guarantees that name no time."""
OPERATOR = 20.0
"""Seconds before an operator replaces or restarts a server: longer than the others need to continue without it."""
MINUTE = 60.0
LEASE = 5.5
"""Seconds after which a server without heartbeats starts no synchronisation: suspect-after and a margin."""


def after(at: float | None, since: float) -> float | None:
    """Return the seconds from ``since`` to ``at``, if there is an ``at``."""
    return None if at is None else at - since


def rest_synchronises(deployed: Deployed, rest: list[int], since: float, report: Report, drill: str) -> float | None:
    """Wait until the remaining servers synchronise again, and report it; return the seconds that it took."""
    at = deployed.until(lambda: deployed.records.synchronised(rest, since), PATIENCE)
    took = after(at, since)
    if drill:
        kept = took is not None and took < LIMIT
        report.add(drill, "the others synchronise again", seconds(took), f"< {LIMIT:g} s", kept)
    return took


def destroy(deployed: Deployed, report: Report, minutes: int, pace: float = MINUTE) -> None:
    """Destroy a server with its disk once a minute, and replace it."""
    for minute in range(1, minutes + 1):
        holder = minute % 3 == 0
        server = deployed.holder() if holder else (minute - 1) % len(deployed.scenario.world.regions)
        token = holder or deployed.has_token(server)
        killed = deployed.destroy(server)
        has = ", which has the token," if token else ""
        print(f"  minute {minute}: server {server}{has} is destroyed", flush=True)
        rest = sorted(deployed.running)
        synchronised = rest_synchronises(deployed, rest, killed, report, "")
        deployed.wait_until(killed + min(OPERATOR, pace / 3))
        deployed.command("members", "replace", deployed.config(rest[0]), str(server))
        started = time.time()
        deployed.serve(server, "--join")

        def exchanged(server: int = server, rest: list[int] = rest, started: float = started) -> float | None:
            given = [at for j in rest if (at := deployed.records.merged(j, server, started)) is not None]
            taken = [at for j in rest if (at := deployed.records.merged(server, j, started)) is not None]
            return max(min(given), min(taken)) if given and taken else None

        merged = deployed.until(exchanged, PATIENCE)
        deployed.wait_until(killed + pace)
        clients = deployed.home_clients(server)
        updates = list(deployed.records.of(server).facts(UpdateApplied))
        first_at, first = updates[0] if updates else (time.time(), None)
        ages = {
            j: max((u.age for _, u in deployed.records.of(j).facts(UpdateApplied, 0, first_at)), default=0.0)
            for j in rest
        }
        loss = Loss(
            minute,
            server,
            token,
            synchronised,
            deployed.records.gap(rest, killed, killed + pace),
            started - killed,
            after(merged, started),
            None if first is None else first.age,
            min(ages.values()),
            deployed.records.pause(clients, killed, time.time()),
            len({u.client for _, u in updates} & set(clients)),
            len(clients),
        )
        report.losses.append(loss)
        report.events.append((killed, started, f"server {server} destroyed" + (", with the token" if token else "")))
        print(
            f"    the others synchronise after {seconds(loss.synchronised)}; the new one, started after "
            f"{loss.replaced:.1f} s, merges {seconds(loss.merged)} later; "
            f"{loss.back} of {loss.clients} clients are back",
            flush=True,
        )
    judge_losses(report)


def judge_losses(report: Report) -> None:
    """Report the guarantees over all losses."""
    losses, drill = report.losses, "destroy"
    times = [loss.synchronised for loss in losses]
    worst = None if None in times else max(t for t in times if t is not None)
    tokens = sum(loss.token for loss in losses)
    report.add(
        drill, "servers destroyed with their disks and replaced", f"{len(losses)}, {tokens} of them with the token"
    )
    kept = worst is not None and worst < LIMIT
    report.add(drill, "the others synchronise again, at worst", seconds(worst), f"< {LIMIT:g} s", kept)
    gap = max(loss.gap for loss in losses)
    report.add(drill, "longest time without a merge between the others", seconds(gap), f"< {LIMIT:g} s", gap < LIMIT)
    merged = [loss.merged for loss in losses]
    slowest = None if None in merged else max(t for t in merged if t is not None)
    report.add(drill, "the new one merges and is merged, at worst", seconds(slowest), "it does", slowest is not None)
    trained = [loss for loss in losses if loss.age is not None and loss.age >= 0.5 * loss.lowest]
    share = min((loss.age / loss.lowest for loss in losses if loss.age is not None and loss.lowest), default=0.0)
    said = f"{len(trained)} of {len(losses)}; age at least {100 * share:.0f} % of the lowest other"
    report.add(drill, "new ones that began with a trained model", said, "all", len(trained) == len(losses))
    report.add(drill, "longest pause of a client whose server was lost", seconds(max(loss.pause for loss in losses)))


def kill(deployed: Deployed, report: Report) -> None:
    """Kill the holder of the token with SIGKILL, and restart it with its disk."""
    server = deployed.holder()
    record = deployed.records.of(server)
    killed = deployed.signal(server, signal.SIGKILL)
    saved = latest(deployed.folder / f"state-{server}")
    assert saved is not None
    version = saved.numbers["server"]["version"]
    rest = sorted(deployed.running)
    print(f"  server {server}, which has the token, is killed", flush=True)
    rest_synchronises(deployed, rest, killed, report, "kill")
    deployed.wait_until(killed + OPERATOR)
    restarted = time.time()
    deployed.serve(server, "--resume")
    merged = deployed.until(lambda: deployed.records.all_merged([server, *rest], restarted), PATIENCE)
    took = after(merged, restarted)
    report.add("kill", "restarted, it and all others merge each other", seconds(took), "they do", merged is not None)
    resumed = [fact for _, fact in record.facts(ServerResumed, killed)]
    lost = sum(max(0, version - fact.version) for fact in resumed)
    report.add("kill", "saved updates that it lost", str(lost), "0", bool(resumed) and lost == 0)
    unsaved = sum(fact.lost_updates for fact in resumed)
    report.add("kill", "updates that were not saved yet, and are counted", str(unsaved))
    report.events.append((killed, restarted, f"server {server} killed, with the token"))


def stop(deployed: Deployed, report: Report) -> None:
    """Pause the holder of the token for longer than a lease, with SIGSTOP and SIGCONT."""
    server = deployed.holder()
    stopped = deployed.signal(server, signal.SIGSTOP)
    rest = sorted(set(deployed.running) - {server})
    print(f"  server {server}, which has the token, is stopped", flush=True)
    rest_synchronises(deployed, rest, stopped, report, "stop")
    deployed.wait_until(stopped + OPERATOR)
    woken = deployed.signal(server, signal.SIGCONT)
    merged = deployed.until(lambda: deployed.records.all_merged([server, *rest], woken), PATIENCE)
    took = after(merged, woken)
    report.add("stop", "woken, it and all others merge each other", seconds(took), "they do", merged is not None)
    record = deployed.records.of(server)
    news = next((at for at, _ in record.facts(EpochStarted, woken)), time.time())
    old = sum(1 for _ in record.facts(SyncStarted, woken, news))
    report.add("stop", "synchronisations that it started with its old token", str(old), "0", old == 0)
    report.events.append((stopped, woken, f"server {server} stopped, with the token"))


def cut_off(deployed: Deployed, report: Report, length: float = MINUTE) -> None:
    """Cut off the region of the token's holder from all others, and heal it."""
    before = time.time()
    deployed.wait(length)
    server = deployed.holder()
    rest = sorted(set(deployed.running) - {server})
    region = {server_place(server), clients_place(server)}
    others = [place for place in deployed.network.places if place not in region]
    cut = deployed.links_between(region, others, cut=True)
    print(f"  server {server}, which has the token, is cut off with its clients", flush=True)
    rest_synchronises(deployed, rest, cut, report, "cut-off")
    deployed.wait_until(cut + length)
    healed = deployed.links_between(region, others, cut=False)
    merged = deployed.until(lambda: deployed.records.all_merged([server, *rest], healed), PATIENCE)
    records, record = deployed.records, deployed.records.of(server)
    usual = len(records.synchronisations([server, *rest], before, cut))
    during = len(records.synchronisations(rest, cut, healed))
    said = f"{during} in {healed - cut:.0f} s, {usual} in {cut - before:.0f} s before"
    report.add("cut-off", "synchronisations of the majority", said, "they go on", during > 0)
    longest = records.gap(rest, cut, healed)
    kept = longest < min(LIMIT, length)
    report.add("cut-off", "longest time without a merge in the majority", seconds(longest), f"< {LIMIT:g} s", kept)
    updates = records.updates(server, cut, healed)
    earlier = records.updates(server, before, cut)
    report.add(
        "cut-off", "updates of the minority's clients", f"{updates}, {earlier} before", "it serves them", updates > 0
    )
    epochs = sum(1 for _ in record.facts(EpochStarted, cut, healed))
    late = sum(1 for _ in record.facts(SyncStarted, cut + LEASE, healed))
    report.add("cut-off", "tokens that the minority made", str(epochs), "0", epochs == 0)
    report.add("cut-off", "synchronisations that it started without a lease", str(late), "0", late == 0)
    took = after(merged, healed)
    report.add("cut-off", "healed, all merge each other", seconds(took), "they do", merged is not None)
    report.events.append((cut, healed, f"server {server} cut off, with the token"))


def link(deployed: Deployed, report: Report, length: float = MINUTE) -> None:
    """Cut the link between two servers in both directions, and heal it."""
    before = time.time()
    deployed.wait(length)
    everybody = sorted(deployed.running)
    a, b, thirds = everybody[0], everybody[1], everybody[2:]
    cut = deployed.links_between([server_place(a)], [server_place(b)], cut=True)
    print(f"  the link between servers {a} and {b} is cut", flush=True)
    deployed.wait_until(cut + length)
    healed = deployed.links_between([server_place(a)], [server_place(b)], cut=False)

    def pair() -> float | None:
        times = deployed.records.merged(a, b, healed), deployed.records.merged(b, a, healed)
        return None if None in times else max(at for at in times if at is not None)

    merged = deployed.until(pair, PATIENCE)
    records = deployed.records
    usual = len(records.synchronisations(everybody, before, cut))
    during = len(records.synchronisations(everybody, cut, healed))
    said = f"{during} in {healed - cut:.0f} s, {usual} in {cut - before:.0f} s before"
    report.add("link", "synchronisations", said, "they go on", during > 0)
    longest = records.gap(thirds, cut, healed)
    kept = longest < min(LIMIT, length)
    report.add("link", "longest time without a merge between the others", seconds(longest), f"< {LIMIT:g} s", kept)
    direct = [records.merged(x, y, cut + LEASE) for x, y in ((a, b), (b, a))]
    through = records.carried(a, b, thirds, cut, healed), records.carried(b, a, thirds, cut, healed)
    said = f"{through[0]} of {a}'s to {b}, {through[1]} of {b}'s to {a}"
    report.add("link", "models with news of one that reached the other by a third", said, "both ways", min(through) > 0)
    early = sum(at is not None and at < healed for at in direct)
    report.add("link", "directions in which the pair still merged directly", str(early), "0", early == 0)
    took = after(merged, healed)
    report.add("link", "healed, the pair merge each other", seconds(took), "they do", merged is not None)
    report.events.append((cut, healed, f"link {a}–{b} cut"))


def members(deployed: Deployed, report: Report) -> None:
    """Add a server with a client of its own, and remove another server."""
    old = sorted(deployed.running)
    new, gone = max(old) + 1, old[1]
    address = deployed.prepare_one_more(new, "Tokyo")
    added = time.time()
    print(f"  server {new} is added", flush=True)
    deployed.command("members", "add", deployed.config(old[0]), str(new), address)
    deployed.serve(new, "--join")
    merged = deployed.until(lambda: deployed.records.all_merged([*old, new], added), PATIENCE)
    took = after(merged, added)
    report.add("members", "added, it and all others merge each other", seconds(took), "they do", merged is not None)
    client = deployed.scenario.client_count
    counts = list(deployed.scenario.world.clients or ())
    counts[-1] += 1
    deployed.attend(new, str(client), [new], "--set", f"world.clients={counts}")
    trains = deployed.until(lambda: deployed.records.updates(new, added) or None, PATIENCE)
    report.add("members", "a client that was added trains there", "yes" if trains else "no", "it does", bool(trains))
    removed = time.time()
    process = deployed.running.pop(gone)
    print(f"  server {gone} is removed", flush=True)
    deployed.command("members", "remove", deployed.config(old[0]), str(gone))
    code = deployed.until(process.poll, PATIENCE)
    report.add(
        "members",
        "removed, it is told and ends",
        seconds(after(time.time(), removed)),
        "exit code 3",
        code == FENCED,
    )
    rest = sorted(deployed.running)
    rest_synchronises(deployed, rest, removed, report, "members")
    orphans = set(deployed.home_clients(gone))

    def settled() -> float | None:
        first: dict[int, float] = {}
        for i in rest:
            for at, update in deployed.records.of(i).facts(UpdateApplied, removed):
                first[update.client] = min(at, first.get(update.client, at))
        return max(first[k] for k in orphans) if orphans <= first.keys() else None

    at = deployed.until(settled, PATIENCE)
    took_over = seconds(after(at, removed))
    report.add("members", "all clients of the removed one train elsewhere", took_over, "they do", at is not None)
    report.events.append((added, added, f"server {new} added"))
    report.events.append((removed, removed, f"server {gone} removed"))


DRILLS: dict[str, Callable[..., None]] = {
    "destroy": destroy,
    "kill": kill,
    "stop": stop,
    "cut-off": cut_off,
    "link": link,
    "members": members,
}
