"""The event log of a server process, and the state that is rebuilt from it."""

import io
from pathlib import Path

import numpy as np
import pytest
from deployment import deployed, table, until

from spyker.cli.main import main
from spyker.errors import RecordError
from spyker.net.checkpoints import latest, name
from spyker.net.event_log import EventLog
from spyker.net.json_log import JsonLog
from spyker.node.control_messages import ProcessIncarnation
from spyker.node.event_codec import FORMAT, LoggedArray, LogHeader, MembershipOptions, record, records
from spyker.node.events import TimerFired
from spyker.node.inbox import NodeOptions
from spyker.node.views import first_view
from spyker.sim.replay import differences, replay
from spyker.vectors import Vector


def saved_version(state: Path) -> int:
    checkpoint = latest(state)
    return 0 if checkpoint is None else checkpoint.numbers["server"]["version"]


@pytest.mark.parametrize("code", ["none", "int4"])
@pytest.mark.parametrize("algorithm", [pytest.param("spyker", marks=pytest.mark.slow), "stride"])
def test_the_log_of_a_killed_server_leads_to_the_bytes_of_its_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str, code: str
) -> None:
    """Twice: of the process that began, and of the one that went on from its checkpoint."""
    compression = {"updates": code, "models": code, "exchanges": "int8" if code == "int4" else code}
    folder = tmp_path / "server-0"
    with deployed(
        table(algorithm, (2, 1), compression=compression), tmp_path, event_log="events", checkpoint_updates=3
    ) as deployment:
        deployment.up(1)
        deployment.attend("2-2", 1)
        for incarnation in (1, 2):
            before = saved_version(folder / "state")
            server = deployment.up(0, *["--resume"] * (incarnation - 1))
            clients = deployment.attend("0-1", 0)
            until(lambda at_least=before + 10: saved_version(folder / "state") > at_least)
            server.kill()
            server.wait()
            clients.kill()
            clients.wait()
            log = folder / "events" / f"events-{incarnation:06}.log"
            checkpoint = latest(folder / "state")
            assert checkpoint is not None
            done = replay(log, checkpoint.numbers["membership"]["checkpoints"])
            assert done.checkpoint is not None
            assert differences(done.checkpoint, checkpoint.numbers, checkpoint.vectors) == []
            assert done.node.server is not None
            assert done.node.server.version >= checkpoint.numbers["server"]["version"]
        assert main(["replay", str(log), "--checkpoint", str(folder / "state" / name(checkpoint.number))]) == 0
        assert "is byte-identical to the replayed state" in capsys.readouterr().out
        with log.open("ab") as file:
            file.write(record(b"an event that was being written")[:-1])
        assert replay(log).events == done.events
        assert main(["replay", str(log)]) == 0
        assert "the last 38 bytes are an incomplete record and were ignored" in capsys.readouterr().out


def header() -> LogHeader:
    weights: Vector = np.zeros(2, np.float32)
    view = first_view([0], [0])
    membership = MembershipOptions(0, view, ProcessIncarnation(1), "", False, 5.0, 10.0, None)
    return LogHeader(FORMAT, "0", "", membership, NodeOptions(), b"secret", 0.0, LoggedArray.of(weights), 0.1, 0)


def test_a_log_that_is_full_ends_with_a_whole_record_and_says_so(tmp_path: Path) -> None:
    said = io.StringIO()
    limit = len(header().encode()) + 100
    log = EventLog(tmp_path, 1, header(), limit, JsonLog(said, server=0))
    for _ in range(100):
        log.append(TimerFired("save", now=1.0))
    data = log.path.read_bytes()
    assert limit - 50 < len(data) <= limit
    assert sum(8 + len(payload) for payload in records(data)) == len(data)
    assert said.getvalue().count("event-log-full") == 1


def test_the_logs_of_the_last_two_processes_are_kept(tmp_path: Path) -> None:
    for incarnation in (1, 2, 3):
        EventLog(tmp_path, incarnation, header(), 1 << 20, JsonLog(io.StringIO(), server=0)).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events-000002.log", "events-000003.log"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_damage_before_the_end_of_a_log_is_an_error() -> None:
    data = bytearray(record(b"one") + record(b"two"))
    data[8] ^= 1
    with pytest.raises(RecordError, match="damaged at byte 0"):
        list(records(bytes(data)))


def test_what_is_not_an_event_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(record(b"\x00"))
    with pytest.raises(RecordError, match="not an event log"):
        replay(tmp_path / "other")
