"""``spyker.compare``, which runs several algorithms in the same world, and ``spyker.load``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyker.algorithms.builtin import COMPARED
from spyker.api.callbacks import Callback
from spyker.api.datasets import data_from
from spyker.api.output_folders import new_folder
from spyker.api.read_scenario import AlgorithmLike, Source, TaskLike, read_scenario
from spyker.api.result import Run, as_frame, as_html, plotted
from spyker.api.run import RunOptions, run_in_turn, short
from spyker.api.sweep import check_counts
from spyker.errors import Interrupted, UsageError
from spyker.extras import require
from spyker.plots.run_groups import RunGroups, group_runs
from spyker.plots.table import as_markdown, rows
from spyker.records import find_runs, write_atomically
from spyker.sweeps.runner import with_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Comparison(Mapping[str, Run]):
    """Runs by name."""

    def __init__(self, runs: Mapping[str, Run], folder: Path) -> None:
        self._runs, self.folder = dict(runs), folder
        self.pictures: list[Path] = []  # after draw()

    def __getitem__(self, name: str) -> Run:
        return self._runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @cached_property
    def shown(self) -> RunGroups:
        """The runs grouped into the lines of a table or figure; runs that differ only in the seed form one line."""
        return group_runs([run.record for run in self.values()])

    @cached_property
    def table(self) -> DataFrame:
        """One row per run: time to each target, final scores, bytes sent. Needs pandas."""
        lines = []
        for name, run in self.items():
            line: dict[str, Any] = {"run": name, "algorithm": run.scenario["algorithm"], "seed": run.scenario["seed"]}
            for target in self.shown.targets:
                line[f"time to {target:g}"], line[f"updates to {target:g}"] = run.reached(target) or (None, None)
            end = run.points
            ends = {f"final {end.metric}": end.mean[-1], "worst server": end.worst[-1], "bytes": end.bytes[-1]}
            lines.append(line | ends)
        return as_frame(lines).set_index("run")

    def plot(self, path: str | Path | None = None, *, against: str = "time") -> Figure:
        """Plot the scores of all runs.

        Args:
            path: file to write the figure to.
            against: horizontal axis: ``time``, ``updates`` or ``bytes``.

        Returns:
            The Matplotlib figure.

        """
        return plotted(self.shown, path, against)

    def draw(self) -> None:
        """Write the table and the plots to the folder of the records."""
        from spyker.plots.run_plots import plot_all  # Matplotlib is slow to import

        write_atomically(self.folder / "table.md", as_markdown(*rows(self.shown)))
        self.pictures = plot_all(self.shown, self.folder)

    def __repr__(self) -> str:
        return f"<Comparison: {', '.join(self)} ({self.folder})>"

    def _repr_html_(self) -> str:
        return as_html(*rows(self.shown))


def compare(
    algorithms: Sequence[AlgorithmLike] | None = None,
    scenario: Source = None,
    *,
    task: TaskLike | None = None,
    clients: int | None = None,
    duration: float | None = None,
    seed: int | None = None,
    seeds: int = 1,
    preset: str = "paper",
    settings: Mapping[str, object] | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    initial_model: str | os.PathLike[str] | None = None,
    model: bool = True,
    workers: int | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Comparison:
    """Run several algorithms in the same world, one after the other.

    A callback that returns ``True`` stops the current run only.

    Args:
        algorithms: names or classes; default: Stride and the algorithms of the paper.
        scenario: as in :func:`spyker.run`.
        task: as in :func:`spyker.run`.
        clients: total number of clients, spread evenly over the regions.
        duration: length of each run in virtual seconds.
        seed: the first seed.
        seeds: number of seeds per algorithm, counted from the first; tables and plots show the mean.
        preset: as in :func:`spyker.run`.
        settings: further keys, such as ``{"training.rate": 0.1}``.
        out: folder for one record per run, the table ``table.md`` and the plots; default: a new folder in ``runs/``.
        overwrite: whether to replace the records in ``out``.
        initial_model: as in :func:`spyker.run`.
        model: whether to write the models to the records.
        workers: number of training processes; default: one per core; 0: train in this process.
        engine: ``local`` or ``ray``.
        ray_address: address of a Ray cluster; default: a cluster started on this machine.
        data_dir: a folder with datasets.
        progress: whether to show the progress.
        callbacks: as in :func:`spyker.run`.

    Returns:
        The runs, by algorithm and, with several seeds, by seed.

    Raises:
        UsageError: an argument or a key of the scenario is invalid.
        KeyboardInterrupt: Ctrl-C stopped the comparison; finished runs are kept.

    """
    require("compare", "matplotlib")
    check_counts(seeds=seeds)
    if isinstance(algorithms, str):
        raise UsageError("algorithms", f"{algorithms!r} is not allowed: it must be a list", f"Write [{algorithms!r}]")
    chosen_ones = list(COMPARED) if algorithms is None else list(algorithms)
    with data_from(data_dir):
        scenarios = [
            read_scenario(
                scenario,
                algorithm=algorithm,
                task=task,
                clients=clients,
                duration=duration,
                seed=seed,
                preset=preset,
                settings=settings,
                others=chosen_ones,
            )
            for algorithm in chosen_ones
        ]
        names = [chosen.chosen.name for chosen in scenarios]
        if len(set(names)) < len(names) or not names:
            raise UsageError(
                "--algorithms",
                "an algorithm occurs twice" if names else "must not be empty",
                "Name each algorithm once",
            )
        folder = new_folder(f"compare-{short(scenarios[0])}") if out is None else Path(out)
        seeded = zip(*(with_seeds(chosen, seeds) for chosen in scenarios), strict=True)  # the data depends on the seed
        groups = [
            {
                folder / (name if seeds == 1 else f"{name}-seed-{chosen.seed}"): chosen
                for name, chosen in zip(names, alike, strict=True)
            }
            for alike in seeded
        ]
        options = RunOptions(overwrite, initial_model, model, workers, engine, ray_address, progress, callbacks)
        runs, interrupted = run_in_turn(groups, folder, options)
    comparison = Comparison({path.name: run for path, run in runs.items()}, folder)
    comparison.draw()
    if interrupted:
        raise Interrupted(f"the comparison was stopped; its records are in {folder}", comparison)
    return comparison


def load(folder: str | os.PathLike[str]) -> Run | Comparison:
    """Read a run record, or all records in the subfolders of a folder.

    Args:
        folder: a run record, finished or in progress, or a folder of run records.

    Returns:
        A run, or a comparison of runs by folder name.

    Raises:
        RecordError: the folder contains no run record.

    """
    found = [run.folder for run in find_runs(Path(folder))]
    if found == [Path(folder)]:
        return Run(found[0])
    return Comparison({path.name: Run(path) for path in found}, Path(folder))
