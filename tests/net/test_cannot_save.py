"""Real processes of which one cannot write its checkpoints: it says so, and the others continue without it."""

from pathlib import Path
from typing import Any

import pytest
from deployment import until
from test_members import Servers, members


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["spyker", "stride"])
def test_the_others_continue_without_a_server_that_cannot_save(tmp_path: Path, capsys: Any, algorithm: str) -> None:
    with Servers(tmp_path, algorithm=algorithm) as deployed:
        deployed.begin()
        state, away = (deployed.folder / "server-0" / name for name in ("state", "away"))
        state.rename(away)  # as a disk that vanishes; unlike a folder without permissions, this holds for root, too
        until(lambda: deployed.log("server-0", "saving-failed"))

        def states() -> dict[int, str]:
            return {m["server"]: m["state"] for m in members(capsys, "list", deployed.config(1))["members"]}

        until(lambda: states() == {0: "cannot save", 1: "here", 2: "there"})
        assert deployed.log("server-1", "peer-suspected")[-1]["reason"] == "cannot save"
        for _ in range(2):  # the second one began while that server could not save
            deployed.merges_on(1, 2)
            deployed.merges_on(2, 1)
        assert not deployed.log("server-0", "saving-resumed")
        away.rename(state)
        until(lambda: deployed.log("server-0", "saving-resumed"))
        updates = len(deployed.facts("update", 0))
        until(lambda: len(deployed.facts("update", 0)) > updates + 5)
        deployed.merges_on(1, 0)
        deployed.merges_on(0, 2)
        until(lambda: set(states().values()) == {"here", "there"})
        for bids in deployed.token_places().values():
            assert len(bids) == len(set(bids)), "one token in each epoch"
