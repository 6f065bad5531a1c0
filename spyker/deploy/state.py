"""What a checkpoint of a server process holds: the protocol's server, the ledger of tasks, and the outboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spyker.deploy.checkpoints import Checkpoint
from spyker.deploy.peers import Posted
from spyker.protocol.server import State
from spyker.vectors import Vector

if TYPE_CHECKING:
    from spyker.deploy.host import Host

OURS = "outbox-"  # what the names of vectors in outboxes begin with


def to_checkpoint(host: Host) -> tuple[dict[str, Any], dict[str, Vector]]:
    """The state of a host as numbers and vectors, which nobody writes to afterwards."""
    assert host.server is not None
    state = host.server.state()
    vectors = dict(state.vectors)
    names = {id(vector): name for name, vector in vectors.items()}
    outboxes = {}
    for j, box in host.outboxes.items():
        entries = []
        for posted in box.entries:
            name = None
            if posted.vector is not None:  # the same model goes to many, and is often the server's own
                name = names.setdefault(id(posted.vector), f"{OURS}{j}-{posted.sequence}")
                vectors[name] = posted.vector
            entries.append([posted.sequence, posted.body.hex(), name, posted.kind])
        outboxes[str(j)] = {"last": box.last, "acked": box.acked, "entries": entries}
    numbers = {
        "id": host.id,
        "layout": host.layout,
        "server": state.numbers,
        "vectors": list(state.vectors),
        "clients": host.ledger.numbers(),
        "outboxes": outboxes,
        "handled": {str(j): sequence for j, sequence in host.handled.items()},
        "lineages": {str(j): lineage for j, lineage in host.lineages.items()},
        "tally": host.tally.numbers(),
    }
    return numbers, vectors


def from_checkpoint(host: Host, checkpoint: Checkpoint) -> None:
    """Put a host into the state that a checkpoint holds."""
    assert host.server is not None
    numbers, vectors = checkpoint.numbers, checkpoint.vectors
    host.server.restore(State(numbers["server"], {name: vectors[name] for name in numbers["vectors"]}))
    host.ledger.restore(numbers["clients"])
    for j, saved in numbers["outboxes"].items():
        box = host.outboxes[int(j)]
        box.last = box.committed = saved["last"]
        box.acked = saved["acked"]
        for sequence, body, name, kind in saved["entries"]:
            box.entries.append(Posted(sequence, bytes.fromhex(body), None if name is None else vectors[name], kind))
    host.handled = {int(j): sequence for j, sequence in numbers["handled"].items()}
    host.lineages = {int(j): lineage for j, lineage in numbers["lineages"].items()}
    host.tally.restore(numbers["tally"])
