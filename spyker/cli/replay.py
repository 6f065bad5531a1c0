"""``spyker replay``: rebuild a server's state from its event log."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.codes import FAILED
from spyker.cli.help import examples


def add_replay(commands: Any) -> None:
    """``spyker replay``."""
    parser = commands.add_parser(
        "replay",
        help="rebuild a server's state from its event log, without a network",
        description="Replay the event log of a server process (deploy.event-log) and print the state that it leads to. "
        "With --checkpoint, compare the replayed state with a checkpoint that the process saved.",
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="an event log: events-000001.log")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="a checkpoint of the same process, in its state folder"
    )
    examples(
        parser,
        "spyker replay server-0/events/events-000001.log",
        "spyker replay server-0/events/events-000001.log --checkpoint server-0/state/checkpoint-000007",
    )
    parser.set_defaults(command=command_replay)


def command_replay(args: argparse.Namespace) -> int:
    """Replay, and compare if a checkpoint is given. Exit code 1 means that the states differ."""
    from spyker.errors import CheckpointError, RecordError
    from spyker.net.checkpoints import read  # slow to import
    from spyker.sim.replay import differences, replay

    numbers: dict[str, Any] = {}
    vectors: dict[str, Any] = {}
    if args.checkpoint is not None:
        try:
            numbers, vectors = read(args.checkpoint)
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"{args.checkpoint}: cannot read it ({error}). Name a checkpoint folder") from None
    wanted = numbers["membership"]["checkpoints"] if numbers else None
    done = replay(args.log, wanted)
    node, server = done.node, done.node.server
    print(f"server {node.id}, incarnation {done.header.membership.incarnation.incarnation}: {done.events:,} events")
    if done.torn:
        print(f"the last {done.torn:,} bytes are an incomplete record and were ignored")
    if server is not None:
        print(f"version {server.version:,}, age {server.age:g}, epoch {node.view.epoch}, {node.waiting} messages wait")
    if args.checkpoint is None:
        return 0
    if done.checkpoint is None:
        raise RecordError(f"{args.log} does not lead to checkpoint {wanted}. Name the log of the process that saved it")
    differing = differences(done.checkpoint, numbers, vectors)
    if differing:
        print(f"{args.checkpoint} differs from the replayed state in: {', '.join(differing)}")
        return FAILED
    print(f"{args.checkpoint} is byte-identical to the replayed state")
    return 0
