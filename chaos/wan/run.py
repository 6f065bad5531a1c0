"""Run a scenario as emulation and as deployment in network namespaces, and check whether the two agree.

    python -m chaos.wan.run [SCENARIO] [--algorithms A,B] [--duration S] [--out DIR] [--docs FILE]

As root. Exit codes: 0 they agree, 1 they do not, 2 the comparison could not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from chaos.wan.compare import Observed, Row, as_markdown, compare, observe
from chaos.wan.costs import Costs, measure, with_costs
from chaos.wan.deployment import WanRunError, deploy
from chaos.wan.figure import draw
from chaos.wan.namespaces import WanError, missing_requirement
from spyker.algorithms.builtin import ALGORITHMS, OF_THE_PAPER
from spyker.config.scenario import Scenario, dump, load
from spyker.engines.start_engine import start_engine
from spyker.errors import UsageError
from spyker.plots.curves import targets
from spyker.records import Fact, RecordWriter, RunRecord
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve, with_task_defaults

HERE = Path(__file__).parent
BEGIN, END = "<!-- measured by make wan: begin -->", "<!-- measured by make wan: end -->"
AGREE, DISAGREE, FAILED = 0, 1, 2
MEASURING_SECONDS = 15.0


@dataclass(frozen=True)
class Outcome:
    """The emulation and the deployment of one algorithm."""

    title: str
    emulated: Observed
    real: Observed
    rows: list[Row]
    apart: float
    """Seconds between the starts of the first and the last server."""
    carried: int
    """Bytes that crossed the network, including those of TCP and TLS."""

    @property
    def agree(self) -> bool:
        """Whether all required comparisons agree."""
        return all(row.agrees is not False for row in self.rows)


def main(arguments: list[str]) -> int:
    """Run, compare, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m chaos.wan.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenario", nargs="?", type=Path, default=HERE / "scenario.toml")
    default = ",".join(OF_THE_PAPER)
    parser.add_argument("--algorithms", default=default, metavar="A,B,…", help="default: the paper's algorithms")
    parser.add_argument("--duration", type=float, metavar="S", help="seconds for each algorithm")
    parser.add_argument("--out", type=Path, default=Path("runs/wan"), metavar="DIR", help="default: runs/wan, replaced")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="also write the tables into this document")
    args = parser.parse_args(arguments)
    try:
        problem = missing_requirement()
        if problem is not None:
            raise WanError(problem)
        overrides = {} if args.duration is None else {"duration": args.duration}
        scenario = resolve(load(args.scenario, overrides))
        names = args.algorithms.split(",")
        for name in names:
            if name not in ALGORITHMS:
                raise UsageError("--algorithms", f"{name!r} is unknown", f"Choose from {', '.join(ALGORITHMS)}")
        shutil.rmtree(args.out, ignore_errors=True)
        out = args.out.absolute()
        costs = measure_costs(scenario, out / "costs")
        outcomes = [run_both(replace(scenario, algorithm=name), costs, out / name) for name in names]
    except (UsageError, WanError, WanRunError) as error:
        print(f"wan: {error}", file=sys.stderr)
        return FAILED
    picture = args.out / "accuracy.png"
    about = f"{scenario.task.name}, {scenario.client_count} clients, seed {scenario.seed}"
    draw({o.title: (o.emulated, o.real) for o in outcomes}, about, picture)
    print(f"records and logs: {args.out}/  ·  picture: {picture}")
    if args.docs is not None:
        document(args.docs, scenario, costs, outcomes, picture)
        print(f"tables: {args.docs}")
    verdict = all(outcome.agree for outcome in outcomes)
    print("Emulation and deployment agree." if verdict else "Emulation and deployment do NOT agree.")
    return AGREE if verdict else DISAGREE


def measure_costs(scenario: Scenario, out: Path) -> Costs:
    """Measure the costs of a deployment on this machine in short runs, which are not compared."""
    short = replace(scenario, duration=min(MEASURING_SECONDS, scenario.duration))
    print(f"Measuring the costs of a deployment, 2 × {short.duration:g} s ...", flush=True)
    spyker, _ = deploy(replace(short, algorithm="spyker"), out / "spyker")
    fedavg, _ = deploy(replace(short, algorithm="fedavg"), out / "fedavg")
    costs = measure(spyker, fedavg[0], short)
    print(describe(costs), flush=True)
    return costs


def describe(costs: Costs) -> str:
    """Describe the costs in a sentence."""
    return (
        f"Measured in separate runs and added to the prediction: {costs.update:.1f} ms between two updates of a "
        f"client, {costs.saving:.1f} ms per message between servers, and {costs.sending:.1f} ms for each model that "
        "is sent at the start of a round."
    )


def run_both(scenario: Scenario, costs: Costs, out: Path) -> Outcome:
    """Run an algorithm deployed, then emulated; the load of the machine affects only the deployment."""
    title = scenario.chosen.title
    print(f"{title}: {scenario.duration:g} s in network namespaces ...", flush=True)
    records, carried = deploy(scenario, out / "real")
    began = [RunRecord(folder).start.began or 0.0 for folder in records[: len(scenario.placement().learners)]]
    print(f"{title}: the same in the emulator ...", flush=True)
    emulate(with_costs(scenario, costs), out / "emulated")
    interval = scenario.evaluation.interval
    emulated = observe([out / "emulated"], scenario.duration, interval)
    real = observe(records, scenario.duration, interval)
    rows = compare(emulated, real, targets([RunRecord(out / "emulated")]), scenario.world.regions)
    outcome = Outcome(title, emulated, real, rows, max(began) - min(began), carried)
    print(summary(outcome) + "\n" + as_markdown(rows))
    return outcome


def emulate(scenario: Scenario, out: Path) -> None:
    """The prediction."""
    task, engine = start_engine(scenario, None, "local", None)
    writer = RecordWriter(out, dump(with_task_defaults(scenario, task)))
    outcome = None

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        writer.write(t, fact, queue)

    try:
        with engine:
            outcome = simulate(scenario, task, engine, sink)
    finally:
        writer.close(outcome)


def summary(outcome: Outcome) -> str:
    """Describe the outcome of one algorithm."""
    verdict = "emulation and deployment agree" if outcome.agree else "emulation and deployment do **not** agree"
    ratio = outcome.carried / outcome.real.bytes
    return (
        f"**{outcome.title}**: {verdict}. The servers started within {outcome.apart:.2f} s of each other. Including "
        f"TCP, TLS and gRPC, {ratio:.2f} times the bytes of the messages crossed the network, from start to end.\n"
    )


def document(path: Path, scenario: Scenario, costs: Costs, outcomes: list[Outcome], picture: Path) -> None:
    """Write the tables between the marks of a document, and the figure into its image folder."""
    text = path.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise WanRunError(f"{path} has no place for the tables: it needs the lines {BEGIN} and {END}")
    images = path.parent / "images"
    shutil.copyfile(picture, images / "wan.png")
    world = scenario.world
    measured = [
        f"{scenario.client_count} clients in {', '.join(world.regions)}, {scenario.duration:g} s for each algorithm, "
        f"on {os.cpu_count()} cores. {describe(costs)}\n",
        "![Accuracy over time, emulated and deployed](images/wan.png)\n",
        *(summary(outcome) + "\n" + as_markdown(outcome.rows) for outcome in outcomes),
    ]
    path.write_text(before + BEGIN + "\n\n" + "\n".join(measured) + "\n" + END + after, "utf-8")


def as_program(main: Callable[[list[str]], int]) -> NoReturn:
    """Run a program so that SIGTERM and SIGHUP run every ``finally``, as Ctrl-C does."""

    def end_in_good_order(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_in_good_order)
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    as_program(main)
