"""``spyker.compare``: several algorithms in the same world; and ``spyker.load``, which reads records back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyker.algorithms.builtin import COMPARED
from spyker.api.callbacks import Callback, Callbacks
from spyker.api.choose_trackers import choose_trackers
from spyker.api.datasets import data_from, prepare_data
from spyker.api.estimate import foresee
from spyker.api.interrupts import interrupts
from spyker.api.output_folders import new_folder, place_for_record
from spyker.api.read_scenario import AlgorithmLike, Source, TaskLike, read_scenario
from spyker.api.result import Run, as_frame, as_html, plotted
from spyker.api.run import emulate, short
from spyker.api.sweep import check_counts
from spyker.engines.start_engine import start_engine
from spyker.errors import Interrupted, UsageError
from spyker.experiments.runner import with_seeds
from spyker.plots.run_groups import RunGroups, together
from spyker.plots.table import as_markdown, rows
from spyker.plots.trackers.forwarding import TrackerForwarder
from spyker.records import find_runs, write_atomically
from spyker.records.lock import locked
from spyker.tasks.initial_model import InitialModelFile
from spyker.tasks.layout import layout_of
from spyker.tasks.memory_check import check_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Comparison(Mapping[str, Run]):
    """Runs by name, to be looked at together."""

    def __init__(self, runs: Mapping[str, Run], folder: Path) -> None:
        self._runs, self.folder = dict(runs), folder
        self.pictures: list[Path] = []  # once they are drawn

    def __getitem__(self, name: str) -> Run:
        return self._runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @cached_property
    def shown(self) -> RunGroups:
        """The runs as lines of a table or a figure; those that differ in their seed alone are one."""
        return together([run.record for run in self.values()])

    @cached_property
    def table(self) -> DataFrame:
        """One row per run: when it reached each target, where it ended, what it sent. It needs pandas."""
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
        """Draw the scores against ``time`` or ``updates``, or the ``bytes`` sent; write them to ``path`` as well."""
        return plotted(self.shown, path, against)

    def draw(self) -> None:
        """Write the table and the plots beside the records."""
        from spyker.plots.run_plots import plot_all  # only now: Matplotlib takes a second to import

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
    follow: Sequence[str] = (),
) -> Comparison:
    """Run several algorithms, by default Stride and those of the paper, in the same world, one after the other.

    Each is run with so many ``seeds``, counted from the scenario's own; tables and plots then have the mean over them.
    Everything else is as in :func:`spyker.run`. ``out`` gets a record for each run, named after its algorithm, with
    several seeds also after its seed, the table as ``table.md`` and the plots. Callbacks watch one run after the other,
    and ``True`` ends the one that they watch.
    """
    audience = Callbacks(callbacks)
    check_counts(seeds=seeds)
    trackers = choose_trackers(follow)
    given = None if initial_model is None else InitialModelFile(Path(initial_model))
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
            raise UsageError("--algorithms", "names one twice" if names else "is empty", "Name each once")
        check_memory(scenarios[:1])
        folder = new_folder(f"compare-{short(scenarios[0])}") if out is None else Path(out)
        done: dict[str, Run] = {}
        with place_for_record(folder, overwrite=overwrite) as place, locked(folder):
            prepare_data(scenarios, progress=progress)
            for alike in zip(*(with_seeds(chosen, seeds) for chosen in scenarios), strict=True):
                made, trainers = start_engine(alike[0], workers, engine, ray_address)  # data depends on the seed
                with trainers, interrupts() as stop:
                    fitted = None if given is None else given.fit(layout_of(made))
                    if not done:
                        if progress:
                            foresee([each for each in scenarios for _ in range(seeds)], made, trainers)
                        place.empty()
                    for name, chosen in zip(names, alike, strict=True):
                        if not stop.interrupted:
                            run = name if seeds == 1 else f"{name}-seed-{chosen.seed}"
                            with locked(folder / run):
                                done[run] = emulate(
                                    chosen,
                                    made,
                                    trainers,
                                    folder / run,
                                    stop,
                                    audience,
                                    TrackerForwarder(trackers, folder / run, f"{folder.resolve().name}/{run}"),
                                    initial_model=fitted,
                                    model=model,
                                    progress=progress,
                                )
                if stop.interrupted:
                    break
    comparison = Comparison(done, folder)
    comparison.draw()
    if stop.interrupted:
        raise Interrupted(f"the comparison was stopped; its records are in {folder}", comparison)
    return comparison


def load(folder: str | os.PathLike[str]) -> Run | Comparison:
    """Read the record in a folder, finished or not; or all those in the folders below it, by their names there."""
    found = [run.folder for run in find_runs(Path(folder))]
    if found == [Path(folder)]:
        return Run(found[0])
    return Comparison({path.name: Run(path) for path in found}, Path(folder))
