"""A simulated disk: what a crash leaves, and what a power cut does."""

import numpy as np

from spyker.node.effects import SaveCheckpoint
from spyker.sim.sim_process import SimDisk


def written(disk: SimDisk, version: int) -> None:
    disk.write(SaveCheckpoint({"version": version}, {"weights": np.zeros(1)}))


def version(disk: SimDisk) -> int | None:
    found = disk.read()
    return None if found is None else found[0]["version"]


def test_a_write_is_visible_at_once_and_survives_a_power_cut_once_it_is_synced() -> None:
    disk = SimDisk(0, 0.0)
    written(disk, 1)
    disk.sync()
    written(disk, 2)
    assert version(disk) == 2
    disk.cut_power()
    assert version(disk) == 1


def test_a_new_process_makes_durable_what_it_starts_from() -> None:
    disk = SimDisk(0, 0.0)
    written(disk, 1)
    disk.begin_incarnation()
    disk.cut_power()
    assert (version(disk), disk.incarnation) == (1, 1)


def test_a_lost_disk_does_not_come_back() -> None:
    disk = SimDisk(0, 0.0)
    written(disk, 1)
    disk.sync()
    disk.lose()
    disk.cut_power()
    assert version(disk) is None
