"""Updates of clients that run on, whatever happens to the processes of their servers."""

from pathlib import Path

import pytest

from chaos.server_kills import kill_servers

RARELY = {"checkpoint_updates": 10**6, "checkpoint_seconds": 1000.0}


def test_a_killed_server_loses_no_update_of_its_clients(tmp_path: Path) -> None:
    """Only the first checkpoint is on disk. The clients send again what the server had applied."""
    report = kill_servers(tmp_path, algorithm="fedasync", servers=1, clients=2, kills=1, updates=30, **RARELY)
    assert (report.lost, report.twice) == (0, 0), report
    assert report.undone > 0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["stride", "spyker"])
def test_servers_that_are_killed_again_and_again_lose_no_update(tmp_path: Path, algorithm: str) -> None:
    """Three clients of a server are the fewest whose rates are limited."""
    report = kill_servers(tmp_path, algorithm=algorithm, servers=2, clients=3, kills=4, updates=100)
    assert (report.lost, report.twice) == (0, 0), report
