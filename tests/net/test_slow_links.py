"""Real processes whose models take several times ``suspect-after`` to transfer."""

from dataclasses import replace
from pathlib import Path

import pytest
from deployment import Deployed, table, until
from slow_links import slow_links
from test_members import QUICK, Servers

from spyker.net.server_config import load_config, write_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class SlowServers(Servers):
    """Servers that reach each other over links with a bandwidth."""

    def __init__(self, folder: Path, algorithm: str, count: int, dimension: int, **deploy: float) -> None:
        often = {"spyker": {"h-intra": 8.0, "h-inter": 5.0}, "stride": {"exchange-rounds": 4}}
        training = {"rate": 0.5, "delay-ms": [400.0] * count}
        task = {"name": "quadratic", "dimension": dimension}
        scenario = table(algorithm, (1,) * count, training=training, task=task, **often)
        Deployed.__init__(self, scenario, folder, **(QUICK | deploy))
        self.count = count
        self.peers = load_config(Path(self.config(0))).deploy.peers

    def pass_through(self, relays: dict[tuple[int, int], str]) -> None:
        for i in range(self.count):
            path = Path(self.config(i))
            known = load_config(path)
            peers = tuple(address if i == j else relays[i, j] for j, address in enumerate(self.peers))
            write_config(path, "../scenario.toml", replace(known.deploy, peers=peers))


@pytest.mark.parametrize("algorithm", ["spyker", "stride"])
def test_large_models_on_slow_links_are_no_failure(tmp_path: Path, algorithm: str) -> None:
    """That nobody is suspected is asserted in the emulator, where it does not depend on how busy the machine is."""
    with SlowServers(tmp_path, algorithm, 3, 500_000) as deployed, slow_links(deployed.peers, 2.0) as relays:
        deployed.pass_through(relays)
        for i in range(3):
            deployed.up(i)
            deployed.attend(str(i), i, more=("--patience", "600"))
        for i in range(3):
            for j in range(3):
                until(lambda i=i, j=j: i == j or deployed.merges(i, j) > 0, 300)
