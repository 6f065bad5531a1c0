"""What would be said without end is said once and counted."""

import asyncio
import io
import itertools
import json
from pathlib import Path
from typing import Any

from node_fixtures import make_driver

from spyker.net.json_log import JsonLog
from spyker.net.rate_limited_log import MAX_SUBJECTS, WINDOW_SECONDS, RateLimitedLog
from spyker.node.events import CheckpointRequested
from spyker.node.rejection import Rejection


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_the_same_refusal_is_said_once_and_then_counted() -> None:
    stream, clock = io.StringIO(), Clock()
    limited_log = RateLimitedLog(JsonLog(stream), clock)
    for _ in range(1000):
        limited_log.say("warning", "rejected", "identity", None, detail="no certificate")
    assert [entry["detail"] for entry in lines(stream)] == ["no certificate"]
    limited_log.say("warning", "rejected", "replayed", 3)
    limited_log.say("warning", "rejected", "identity", 4)
    assert len(lines(stream)) == 3, "another reason and another client are news"
    limited_log.sum_up()
    assert len(lines(stream)) == 3, "it is not time yet"
    clock.now += WINDOW_SECONDS
    limited_log.sum_up()
    said = lines(stream)[3:]
    assert [(entry["event"], entry["reason"], entry["repeated"]) for entry in said] == [("rejected", "identity", 999)]
    limited_log.say("warning", "rejected", "identity", None)
    assert len(lines(stream)) == 5, "after a while it is said again"


def test_however_many_are_refused_the_log_stays_short() -> None:
    stream, clock = io.StringIO(), Clock()
    limited_log = RateLimitedLog(JsonLog(stream), clock)
    for client in range(10_000):
        limited_log.say("warning", "rejected", "mismatch", client)
    assert len(lines(stream)) == MAX_SUBJECTS
    limited_log.sum_up(all=True)
    assert lines(stream)[-1]["repeated"] == 10_000 - MAX_SUBJECTS


def test_a_server_counts_every_refusal_and_says_one(tmp_path: Path) -> None:
    said = io.StringIO()

    async def scene() -> None:
        driver = make_driver(tmp_path, said=said)
        for _ in range(500):
            driver.refused(None, Rejection("identity", "none"))
        counted = driver.metrics.registry.get_sample_value(
            "spyker_rejections_total", {"server": "0", "reason": "identity"}
        )
        assert counted == 500

    asyncio.run(scene())
    assert len([entry for entry in lines(said) if entry["event"] == "rejected"]) == 1


def test_a_full_disk_is_tried_no_more_often_than_it_should_be_and_named_once(tmp_path: Path) -> None:
    said = io.StringIO()

    async def scene() -> int:
        driver = make_driver(tmp_path, said=said, min_clients=0, checkpoint_updates=1, save_retry=0.05)
        tries: list[float] = []
        enough = asyncio.Event()

        def save(numbers: object, vectors: object) -> int:
            tries.append(driver.loop.time())
            if len(tries) == 6:
                enough.set()
            if len(tries) < 6:
                raise OSError(28, "No space left on device")
            return 1

        driver.checkpoints.save = save  # type: ignore[method-assign]
        driver.begin()
        async with asyncio.timeout(30):
            while not enough.is_set():
                driver.node._changed = True  # updates come all the time
                driver.deliver(CheckpointRequested(now=driver.now()))
                await asyncio.sleep(0.001)
            while driver._unsaved:
                await asyncio.sleep(0.001)
        driver.close()
        assert all(later - before >= 0.045 for before, later in itertools.pairwise(tries[:6])), "until one works"
        return len(tries)

    asyncio.run(scene())
    failed = [entry for entry in lines(said) if entry["event"] == "checkpoint-failed"]
    assert len(failed) == 2
    assert "No space left" in failed[0]["error"]
    assert failed[1]["repeated"] == 4, "and when it works again, how often it did not"
