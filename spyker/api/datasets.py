"""The datasets that a run needs: from where, and before anything else waits for them."""

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
    """Let this process, and the workers that it starts meanwhile, look for datasets in a folder."""
    before = os.environ.get(VARIABLE)
    if folder is not None:
        os.environ[VARIABLE] = os.path.abspath(folder)
    try:
        data_folder()  # refuses one that does not exist
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        elif folder is not None:
            del os.environ[VARIABLE]


def prepare_data(scenarios: Iterable[Scenario], *, progress: bool = True) -> None:
    """Fetch what the tasks of some scenarios need."""
    for name in dict.fromkeys(scenario.task.name for scenario in scenarios):
        if name not in DATASETS:
            continue
        if progress:
            with FetchProgress(name) as bar:
                fetch(DATASETS[name], bar)
        else:
            fetch(DATASETS[name])
