"""Real processes of which one ends: the others do not wait until it could be suspected for its silence."""

from pathlib import Path

import pytest
from deployment import Deployed, table, until

HOUR = 3600.0


@pytest.mark.slow  # tests/node/test_ended_servers.py has the same rules without processes
def test_the_others_do_not_wait_for_a_server_that_was_killed(tmp_path: Path) -> None:
    scenario = table("spyker", (1, 1, 1), training={"rate": 0.5, "delay-ms": [40.0] * 3})
    patient = {"heartbeat": 0.25, "suspect_after": HOUR, "renew_token_after": HOUR}
    with Deployed(scenario, tmp_path, **patient) as deployed:
        for i in range(3):
            deployed.up(i)
            deployed.attend(str(i), i, more=("--patience", "600"))
        until(lambda: all(deployed.facts("merge", i) for i in range(3)))
        # Both have called it: one that has never responded to a server may be about to start.
        until(lambda: all(2 in {line["peer"] for line in deployed.log(f"server-{i}", "link-up")} for i in (0, 1)))
        deployed.servers[2].kill()
        until(lambda: all([fact["peer"] for fact in deployed.facts("peer-suspected", i)] == [2] for i in (0, 1)))
        assert deployed.log("server-0", "peer-suspected")[-1]["reason"] == "connection refused"
