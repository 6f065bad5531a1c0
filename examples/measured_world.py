"""An emulated world from measured latencies: three regions, most clients in the first, low bandwidth between servers.

pings.csv has one ping per line. Two algorithms run in the resulting world: Stride with a server in each region, and
FedAvg with one server in the first region:

    python measured_world.py

The same with commands; the first one writes a scenario file with all keys, which you can edit:

    spyker scenario --pings pings.csv > measured.toml
    spyker compare measured.toml --algorithms stride,fedavg --set world.clients=[12,6,6] --set training.rate=0.2
"""

import argparse
from pathlib import Path

import spyker
from spyker import read_pings

PINGS = Path(__file__).with_name("pings.csv")


def main() -> None:
    """Run both algorithms in the measured world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pings", type=Path, default=PINGS, help="a table of round trips, CSV or JSON")
    parser.add_argument("--duration", type=float, default=15, help="virtual seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/measured"))
    args = parser.parse_args()
    world = read_pings(args.pings) | {"bandwidth-mbit": 20}
    world["clients"] = [12] + [6] * (len(world["regions"]) - 1)
    runs = spyker.compare(
        ["stride", "fedavg"],
        {"world": world, "training": {"rate": 0.2, "epochs": 3}, "evaluation": {"interval": 0.25}},
        task="digits",
        duration=args.duration,
        out=args.out,
        workers=0,  # sending so small a task to workers takes longer than training it
        overwrite=True,
        progress=False,
    )
    for name, run in runs.items():
        print(f"{name}: accuracy 0.8 at {run.reached(0.8)}, in the end {run.summary['final']['mean']:.3f}")


if __name__ == "__main__":
    main()
