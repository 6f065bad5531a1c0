"""For all tests: none may see the cache or the data of whoever runs them."""

import itertools
import os
import secrets
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from spyker.net import local_cluster

# The same examples every time, and no stopwatch: the machine may be busy.
settings.register_profile("spyker", deadline=None, derandomize=True)
settings.load_profile("spyker")

# Tests run side by side, on all cores: more threads, here and in processes that tests start, only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs ignore Ctrl-C, and so would all processes that tests start and end with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose files take long, up to two minutes each. They come first, so that no worker is left with one at the end.
LONG = (
    "chaos/tests/wan",
    "tests/library",
    "tests/net",
    "lab/tests/paper",
    "lab/tests/race",
    "tests/sweeps",
    "tests/cli",
    "tests/formal",
    "tests/sim",
    "tests/tasks",
    "tests/engines",
    "chaos/tests",
    "tests/dashboard",
    "tests/examples",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long files come first."""
    here = Path(__file__).parent
    places = {item.nodeid: item.path.parent.relative_to(here).as_posix() for item in items}
    items.sort(key=lambda item: LONG.index(place) if (place := places[item.nodeid]) in LONG else len(LONG))


class OwnPorts:
    """Ports of this worker of pytest, each in its turn: a server may begin to listen long after its port was chosen."""

    def __init__(self) -> None:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self.mine = local_cluster.PORTS[worker::count]
        begin = secrets.randbelow(len(self.mine))  # another run of the tests on this machine begins elsewhere
        self.turn = itertools.cycle([*self.mine[begin:], *self.mine[:begin]])

    def __len__(self) -> int:
        return len(self.mine)

    def __getitem__(self, index: int) -> int:
        return next(self.turn)


local_cluster.PORTS = OwnPorts()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no folder of data."""
    monkeypatch.delenv("SPYKER_DATA", raising=False)
    monkeypatch.setenv("SPYKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
