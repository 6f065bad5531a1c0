"""A run that somebody else makes, told as its record grows, in a thread: who makes it never waits for a tracker."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from spyker.plots.trackers.forwarding import TrackerForwarder
from spyker.plots.trackers.tracker import Tracker
from spyker.records import Follower, RecordError, RunRecord

PAUSE_SECONDS = 0.5


@contextlib.contextmanager
def forward_live(trackers: Sequence[Tracker], folder: Path, name: str) -> Iterator[None]:
    """Tell the run whose record is written in ``folder`` meanwhile, from its first fact to its last."""
    log = logging.getLogger("spyker.trackers")
    over = threading.Event()

    def tell() -> None:
        with TrackerForwarder(trackers, folder, name, log.error) as following:
            follower, ended = Follower(folder), False
            while not ended:
                ended = over.wait(PAUSE_SECONDS)
                try:
                    for t, fact, _ in follower.poll():
                        following.fact(t, fact)
                except RecordError as error:
                    log.error(str(error))
            with contextlib.suppress(RecordError):  # it never began
                following.end(RunRecord(folder).summary)

    thread = threading.Thread(target=tell, name="follow")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
