"""``spyker run`` and ``spyker compare``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from spyker.cli.data import prepare_data
from spyker.cli.options import add_scenario_options, default_out, read_scenario, use_data_dir
from spyker.config.scenario import Scenario, dump
from spyker.config.sections import ScenarioError
from spyker.emulate.clock import Stop
from spyker.emulate.run import run
from spyker.learn.engine import Engine
from spyker.learn.registry import with_targets
from spyker.learn.start import start
from spyker.learn.task import Task
from spyker.protocol.registry import ALGORITHMS
from spyker.records import Fact, RecordWriter, Run, check_new, clear, write_atomically
from spyker.show.curves import curves, targets
from spyker.show.progress import LiveProgress
from spyker.show.table import as_markdown, for_terminal

INTERRUPTED = 130


def add_run(commands: Any) -> None:
    """``spyker run``."""
    parser = commands.add_parser("run", help="run one algorithm in the emulated world")
    add_scenario_options(parser, algorithm=True)
    parser.set_defaults(command=command_run)


def add_compare(commands: Any) -> None:
    """``spyker compare``."""
    parser = commands.add_parser("compare", help="run several algorithms in the same world; table and plots")
    add_scenario_options(parser, algorithm=False)
    parser.add_argument("--algorithms", metavar="A,B,…", help=f"default: {','.join(ALGORITHMS)}")
    parser.set_defaults(command=command_compare)


def command_run(args: argparse.Namespace) -> int:
    """Run one scenario and say how it went."""
    use_data_dir(args)
    scenario = read_scenario(args)
    out: Path = args.out or default_out(f"{scenario.algorithm}-{short(scenario.task.name)}")
    check_new(out, overwrite=args.overwrite)
    prepare_data(scenario)
    task, engine = start(scenario, args.workers, args.engine, args.ray_address)
    with engine, stop_on_signals() as stop:
        clear(out, overwrite=args.overwrite)
        record(scenario, task, engine, out, stop)
    show_table([Run(out)])
    print(f"record: {out}/  ·  to draw it: spyker plot {out}")
    return INTERRUPTED if stop.requested else 0


def command_compare(args: argparse.Namespace) -> int:
    """Run several algorithms in one world, one after the other."""
    from spyker.show.plots import plot_all  # only now: Matplotlib takes a second to import

    use_data_dir(args)
    base = read_scenario(args)
    names = args.algorithms.split(",") if args.algorithms else list(ALGORITHMS)
    for name in names:
        if name not in ALGORITHMS:
            raise ScenarioError("--algorithms", f"{name!r} is unknown", f"Choose from {', '.join(ALGORITHMS)}")
    if len(set(names)) < len(names):
        raise ScenarioError("--algorithms", "names one twice", "Name each once")
    out: Path = args.out or default_out(f"compare-{short(base.task.name)}")
    check_new(out, overwrite=args.overwrite)
    prepare_data(base)
    task, engine = start(base, args.workers, args.engine, args.ray_address)
    began = time.monotonic()
    with engine, stop_on_signals() as stop:
        clear(out, overwrite=args.overwrite)
        done = []
        for name in names:
            if not stop.requested:
                record(read_scenario(args, {"algorithm": name}), task, engine, out / name, stop)
                done.append(Run(out / name))
    show_table(done)
    drawn = curves(done)
    write_atomically(out / "table.md", as_markdown(drawn, targets(done)))
    pictures = plot_all(drawn, targets(done), out)
    print(f"{base.duration:g} virtual seconds × {len(done)} algorithms in {time.monotonic() - began:.0f} s; plots:")
    for picture in pictures:
        print(f"  {picture}")
    return INTERRUPTED if stop.requested else 0


def record(scenario: Scenario, task: Task, engine: Engine, out: Path, stop: Stop) -> None:
    """Run a scenario with live progress and leave its record in ``out``, whatever happens."""
    writer = RecordWriter(out, dump(with_targets(scenario, task.metric)))
    summary = None
    try:
        with LiveProgress(scenario.chosen.title, scenario.duration, task.metric.name) as progress:

            def sink(t: float, fact: Fact, queue: int | None) -> None:
                writer.write(t, fact, queue)
                progress.fact(t, fact)

            summary = run(scenario, task, engine, sink, stop)
    finally:
        writer.close(summary)


def show_table(runs: list[Run]) -> None:
    """Print the table of some runs."""
    Console().print(for_terminal(curves(runs), targets(runs)))


def short(task: str) -> str:
    """A task's name as part of a folder's."""
    return task.rpartition(":")[2]


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM end the run in good order; a second Ctrl-C ends it at once."""
    stop = Stop()

    def on_signal(number: int, frame: object) -> None:
        stop.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
