"""Real namespaces, real packets, and the kernel's own timestamps, which do not depend on when the test is scheduled."""

import contextlib
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.wan.namespaces import PREFIX, RUN, WanError, existing, missing_requirement, remove_leftovers
from chaos.wan.network import Network

ROOT = Path(__file__).parents[3]
SO_TIMESTAMPNS = 35
PROBLEM = missing_requirement()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROBLEM is not None, reason=f"no network can be made here: {PROBLEM}"),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(["Paris", "Sydney", "Hongkong"]) as made:
        yield made


def udp(network: Network, place: str) -> socket.socket:
    made = network.inside(place, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind((network.address(place), 0))
    made.settimeout(1)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return made


def one_way(network: Network, source: str, target: str, count: int, pause: float = 0.005) -> list[float]:
    """Return the travel times of the packets that arrived, in seconds."""
    with udp(network, source) as out, udp(network, target) as into:
        where = into.getsockname()
        taken: list[float] = []

        def receive() -> None:
            with contextlib.suppress(TimeoutError):
                for _ in range(count):
                    data, notes, _, _ = into.recvmsg(100, 100)
                    seconds, nanoseconds = struct.unpack("qq", notes[0][2])
                    taken.append(seconds - struct.unpack("q", data)[0] / 1e9 + nanoseconds / 1e9)

        thread = threading.Thread(target=receive)
        thread.start()
        for _ in range(count):
            out.sendto(struct.pack("q", time.time_ns()), where)
            time.sleep(pause)
        thread.join()
    return taken


def passes(network: Network, source: str, target: str) -> bool:
    return bool(one_way(network, source, target, 1))


@pytest.mark.parametrize("delay", [20.0, 100.0, 278.83])
def test_a_packet_takes_the_delay_of_its_direction(network: Network, delay: float) -> None:
    network.set("Paris", "Sydney", delay_ms=delay)
    network.set("Sydney", "Paris", delay_ms=1)
    taken = one_way(network, "Paris", "Sydney", 40)
    assert len(taken) == 40
    assert min(taken) >= delay / 1000
    assert statistics.median(taken) * 1000 == pytest.approx(delay, rel=0.03, abs=1)
    assert statistics.median(one_way(network, "Sydney", "Paris", 40)) < 0.01


def test_a_delay_holds_while_every_core_is_busy(network: Network) -> None:
    network.set("Paris", "Hongkong", delay_ms=100)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        taken = one_way(network, "Paris", "Hongkong", 40)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert statistics.median(taken) == pytest.approx(0.1, rel=0.1)


def test_a_stream_gets_the_rate_and_not_more(network: Network) -> None:
    network.set("Paris", "Sydney", delay_ms=5, rate_mbit=20)
    network.set("Sydney", "Paris", delay_ms=5, rate_mbit=0)
    size = 2_000_000

    def listen() -> socket.socket:
        return socket.create_server((network.address("Sydney"), 0))

    with network.inside("Sydney", listen) as listening:
        out = network.inside("Paris", socket.socket)
        with out:
            out.connect(listening.getsockname())
            into, _ = listening.accept()
            threading.Thread(target=out.sendall, args=(bytes(size),)).start()
            got, began, first = 0, 0.0, 0
            while got < size:
                got += len(into.recv(1 << 20))
                if not began:
                    began, first = time.monotonic(), got
            took = time.monotonic() - began
            into.close()
    network.set("Paris", "Sydney", rate_mbit=0)
    assert 0.8 * 20 < 8 * (got - first) / took / 1e6 < 20


def test_packets_are_lost_as_often_as_asked(network: Network) -> None:
    network.set("Paris", "Hongkong", delay_ms=1, loss=0.3)
    before = network.links()["Paris", "Hongkong"]["lost"]
    came = len(one_way(network, "Paris", "Hongkong", 400, pause=0.0005))
    lost = network.links()["Paris", "Hongkong"]["lost"] - before
    network.set("Paris", "Hongkong", loss=0)
    assert came + lost == 400
    assert lost == pytest.approx(120, abs=45)  # five standard deviations


def test_a_link_is_cut_in_one_direction_and_heals(network: Network) -> None:
    network.set("Paris", "Sydney", delay_ms=1)
    network.set("Sydney", "Paris", delay_ms=1)
    network.cut("Paris", "Sydney")
    assert not passes(network, "Paris", "Sydney")
    assert passes(network, "Sydney", "Paris")
    assert passes(network, "Hongkong", "Sydney")
    assert network.links()["Paris", "Sydney"]["is_cut"]
    network.heal("Paris", "Sydney")
    assert passes(network, "Paris", "Sydney")


def test_nonsense_is_refused_and_the_network_goes_on(network: Network) -> None:
    with pytest.raises(WanError, match="no place 'Berlin'"):
        network.cut("Paris", "Berlin")
    with pytest.raises(WanError, match=r"loss .* cannot be 1\.5"):
        network.set("Paris", "Sydney", loss=1.5)
    with pytest.raises(WanError, match="no command 'dance'"):
        network._order("dance")
    assert passes(network, "Hongkong", "Paris")


HOLDER = """
import sys, time
from chaos.wan.network import Network
with Network(["a", "b"]) as network:
    process = network.run("a", [sys.executable, "-c", "import time; time.sleep(1000)"])
    print(network._claim.name, process.pid, flush=True)
    time.sleep(1000)
"""


def held() -> tuple[subprocess.Popen[str], str, int]:
    """Start a process with a network; return the network's name and the process in it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert holder.stdout is not None
    name, pid = holder.stdout.readline().split()
    return holder, name, int(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_leaves_nothing_behind() -> None:
    holder, name, pid = held()
    assert len(existing(f"{PREFIX}{name}-")) == 2
    holder.send_signal(signal.SIGINT)
    holder.wait(200)
    assert existing(f"{PREFIX}{name}-") == []
    assert not alive(pid)
    assert not (RUN / name).exists()


def test_what_a_killed_network_left_is_removed_by_the_next_one_and_a_living_one_is_not(network: Network) -> None:
    holder, name, pid = held()
    remove_leftovers()
    assert len(existing(f"{PREFIX}{name}-")) == 2
    holder.kill()
    holder.wait()
    assert alive(pid)
    with Network(["c", "d"]):
        assert existing(f"{PREFIX}{name}-") == []
        assert not alive(pid)
    assert not (RUN / name).exists()
    assert passes(network, "Hongkong", "Paris")
