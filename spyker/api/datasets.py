"""Datasets of a run: their folder, and downloads before the run starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from spyker.config.scenario import Scenario
from spyker.plots.fetch_progress import FetchProgress
from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.data.load import VARIABLE, data_folder, fetch


@contextlib.contextmanager
def data_from(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Search for datasets in ``folder``, also in worker processes that are started within the context."""
    before = os.environ.get(VARIABLE)
    if folder is not None:
        os.environ[VARIABLE] = os.path.abspath(folder)
    try:
        data_folder()  # raises an error if it does not exist
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        elif folder is not None:
            del os.environ[VARIABLE]


def prepare_data(scenarios: Iterable[Scenario], *, progress: bool = True) -> None:
    """Download the datasets that the tasks of the scenarios need."""
    for name in dict.fromkeys(scenario.task.name for scenario in scenarios):
        if name not in DATASETS:
            continue
        if progress:
            with FetchProgress(name) as bar:
                fetch(DATASETS[name], bar)
        else:
            fetch(DATASETS[name])
