"""TensorBoard's files, read back as TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def runs(folder: Path) -> list[str]:
    """The names under which TensorBoard shows runs."""
    return sorted({path.parent.relative_to(folder).as_posix() for path in folder.rglob("events.out.tfevents.*")})


def scalars(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    """Step, seconds since the first of them, as TensorBoard's relative axis has them, and value."""
    events = accumulated(folder)
    if tag not in events.Tags()["scalars"]:
        return []
    found = events.Scalars(tag)
    return [(each.step, each.wall_time - found[0].wall_time, each.value) for each in found]


def accumulated(folder: Path) -> Any:
    """Everything that TensorBoard sees in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def settings(folder: Path) -> dict[str, Any]:
    """What the HParams page shows."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    content = accumulated(folder).SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in found.items()}
