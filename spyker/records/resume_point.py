"""What an interrupted run goes on from: one file in its record, which is gone when the run has come to its end.

A file is written aside and renamed into place, so that a kill leaves the last one whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from spyker.errors import RecordError
from spyker.protocol.codec import Array
from spyker.protocol.state import ServerState
from spyker.records.files import FACTS, is_record, replacing
from spyker.records.tensors import write_tensors

SAVE = "resume.safetensors"


class ResumePoint(NamedTuple):
    """The state of a run, how many bytes of facts there were, and which code made it."""

    state: ServerState
    facts: int
    made_by: str


def write_resume_point(folder: Path, save: ResumePoint) -> None:
    """Keep a state in place of the last. A vector that appears under several names is written once."""
    vectors = save.state.vectors
    names: dict[int, str] = {}
    same = {key: names.setdefault(id(vector), key) for key, vector in vectors.items()}
    shared = [key for key in names.values() if not vectors[key].flags.writeable]
    table = {"numbers": save.state.numbers, "same": same, "shared": shared, "facts": save.facts, "by": save.made_by}
    with replacing(folder / SAVE) as temporary:
        write_tensors(temporary, {key: vectors[key] for key in names.values()}, {"save": json.dumps(table)})


def read_resume_point(folder: Path) -> ResumePoint:
    """What the run in a folder can go on from."""
    path = folder / SAVE
    if not is_record(folder):
        raise RecordError(f"{folder} is not a run record, so there is nothing to resume. Leave out --resume")
    if not path.exists():
        raise RecordError(
            f"{folder} holds nothing to go on from: its run has finished, or ended before anything was saved, or "
            "cannot be saved (an outage in the scenario, a task whose clients keep a state, an algorithm that keeps "
            "what a checkpoint cannot hold). Run it anew with --overwrite"
        )
    try:
        with safe_open(path, "numpy") as file:
            table: dict[str, Any] = json.loads(file.metadata()["save"])
            found: dict[str, Array] = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        for name in table["shared"]:
            found[name].flags.writeable = False
        vectors = {name: found[at] for name, at in table["same"].items()}
        save = ResumePoint(ServerState(table["numbers"], vectors), table["facts"], table["by"])
        written = (folder / FACTS).stat().st_size
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RecordError(f"{path} cannot be read ({error}). Run it anew with --overwrite") from None
    if written < save.facts:
        raise RecordError(f"{folder / FACTS} has lost facts that {SAVE} builds on. Run it anew with --overwrite")
    return save
