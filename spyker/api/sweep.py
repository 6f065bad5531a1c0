"""``spyker.sweep``: runs of a scenario with several values of some keys."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.api.output_folders import OutputFolder, new_folder
from spyker.api.read_scenario import AlgorithmLike, Source, TaskLike, read_scenario
from spyker.api.result import as_frame, as_html
from spyker.api.run import short
from spyker.engines.start_engine import available_cores
from spyker.errors import Interrupted, UsageError
from spyker.extras import require
from spyker.plots.run_groups import about, format_value
from spyker.plots.samples import sample
from spyker.records import RunRecord, write_atomically
from spyker.sweeps.runner import check_folder, folder_of, locked_folder, run_watched, with_seeds
from spyker.sweeps.sweep_points import SweepPoint, SweepRow, as_csv, cells, combinations, lines, main_measures, row
from spyker.tasks.memory_check import check_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

PICTURE = "sweep.png"


class Sweep:
    """The results of a sweep: one row per combination, with one number per seed and measure."""

    def __init__(self, rows: Sequence[SweepRow], folder: Path) -> None:
        self.rows, self.folder = rows, folder

    @cached_property
    def table(self) -> DataFrame:
        """One row per combination and seed. Needs pandas."""
        heads, body = lines(self.rows)
        return as_frame([dict(zip(heads, line, strict=True)) for line in body])

    @cached_property
    def summaries(self) -> dict[str, dict[str, Any] | None]:
        """The summary of each run, by its varied values; ``None`` where training diverged."""
        found: dict[str, dict[str, Any] | None] = {}
        for each in self.rows:
            values = [f"{key.rpartition('.')[2]}={format_value(value)}" for key, value in each.values.items()]
            for seed, folder in zip(each.seeds, each.folders, strict=True):
                name = [*values, f"seed={seed}"] if len(each.seeds) > 1 else values
                found[" ".join(name)] = RunRecord(self.folder / folder).summary
        return found

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot each measure over the values, with the range over seeds.

        Args:
            path: file to write the figure to.

        Returns:
            The Matplotlib figure.

        """
        from spyker.plots.run_plots import save  # Matplotlib is slow to import
        from spyker.plots.sweep_figure import plot_settings

        seeds = len(self.rows[0].seeds)
        unknown = sample([None] * seeds)
        measures = {m: [row.measures.get(m, unknown) for row in self.rows] for m in main_measures(self.rows)}
        records = [[RunRecord(self.folder / folder) for folder in row.folders] for row in self.rows]
        titles = [runs[0].start.title for runs in records]
        points = [row.values for row in self.rows]
        figure = plot_settings(points, titles, measures, about(run for runs in records for run in runs))
        if path is not None:
            save(figure, Path(path))
        return figure

    def __repr__(self) -> str:
        return f"<Sweep: {len(self.rows)} combinations of {', '.join(self.rows[0].values)} ({self.folder})>"

    def _repr_html_(self) -> str:
        return as_html(*cells(self.rows))


def sweep(
    scenario: Source = None,
    *,
    vary: Mapping[str, Sequence[object]],
    seeds: int = 1,
    jobs: int | None = None,
    resume: bool = False,
    algorithm: AlgorithmLike | None = None,
    task: TaskLike | None = None,
    clients: int | None = None,
    duration: float | None = None,
    seed: int | None = None,
    preset: str = "paper",
    settings: Mapping[str, object] | None = None,
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Sweep:
    """Run all combinations of the values of some keys.

    Args:
        scenario: as in :func:`spyker.run`.
        vary: values by key, such as ``{"training.rate": [0.1, 0.2]}``.
        seeds: number of seeds per combination, counted from the first.
        jobs: number of concurrent runs; default: one per core.
        resume: continue in an existing ``out``: finished runs are kept, and new values are added.
        algorithm: as in :func:`spyker.run`.
        task: as in :func:`spyker.run`.
        clients: total number of clients, spread evenly over the regions.
        duration: length of each run in virtual seconds.
        seed: the first seed.
        preset: as in :func:`spyker.run`.
        settings: further keys, such as ``{"training.rate": 0.1}``.
        out: folder for one record per run, ``sweep.csv`` and ``sweep.png``; default: a new folder in ``runs/``.
        data_dir: a folder with datasets.
        progress: whether to show the progress.

    Returns:
        One row per combination.

    Raises:
        UsageError: an argument or a key of the scenario is invalid.
        KeyboardInterrupt: Ctrl-C stopped the sweep; finished runs are kept.

    """
    require("sweep", "matplotlib")
    check_counts(seeds=seeds, jobs=jobs)
    with data_from(data_dir):
        points = [
            SweepPoint(
                values,
                read_scenario(
                    scenario,
                    algorithm=algorithm,
                    task=task,
                    clients=clients,
                    duration=duration,
                    seed=seed,
                    preset=preset,
                    settings=settings,
                    varied=values,
                ),
            )
            for values in combinations(vary)
        ]
        folder = new_folder(f"sweep-{short(points[0].scenario)}") if out is None else Path(out)
        scenarios = [s for point in points for s in with_seeds(point.scenario, seeds)]
        check_memory(sorted(scenarios, key=lambda s: s.client_count)[-(jobs or available_cores()) :])
        with OutputFolder(folder / "runs", lambda: check_folder(folder, resume=resume)) as place:
            prepare_data(scenarios, progress=progress)
            place.keep()
        with interrupts() as stop, locked_folder(folder / "runs"):
            runs = run_watched("sweep", scenarios, folder / "runs", jobs, stop, progress=progress)
    if stop.interrupted:
        raise Interrupted(f"stopped; to continue: the same command with --out {folder} and --resume")
    folders = [folder_of(scenario, Path("runs")).as_posix() for scenario in scenarios]
    seeded = [slice(i * seeds, (i + 1) * seeds) for i in range(len(points))]
    rows = [row(point, runs[its], folders[its]) for point, its in zip(points, seeded, strict=True)]
    write_atomically(folder / "sweep.csv", as_csv(rows))
    done = Sweep(rows, folder)
    if main_measures(rows):
        done.plot(folder / PICTURE)
    return done


def check_counts(*, seeds: int | None, jobs: int | None = None) -> None:
    """Raise a ``UsageError`` for counts below 1."""
    for option, value in (("--seeds", seeds), ("--jobs", jobs)):
        if value is not None and value < 1:
            raise UsageError(option, f"{value} is not allowed", "Give at least 1")
