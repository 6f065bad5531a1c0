"""``spyker privacy``: what clients have spent of their privacy budgets."""

from __future__ import annotations

import argparse
from math import isfinite
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.cli.output import add_json


def add_privacy(commands: Any) -> None:
    """``spyker privacy``."""
    parser = commands.add_parser(
        "privacy",
        help="show what clients have spent of their privacy budgets",
        description="Show ε, δ and the booked trainings of each client from the ledgers in its folder, or in its state "
        "folder. The client may be running. Booked trainings are never fewer than those that took place.",
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="folders of clients, or their state folders"
    )
    add_json(parser)
    examples(parser, "spyker privacy client-charite", "spyker privacy client-*/ --json")
    parser.set_defaults(command=command_privacy)


def command_privacy(args: argparse.Namespace) -> int:
    """Read the ledgers, and print a table."""
    from spyker.extras import require
    from spyker.net.ledger_file import find_ledgers

    ledgers = sorted(find_ledgers(args.folders), key=lambda ledger: ledger.client)
    if any(booking.mechanism.sample_rate < 1 for ledger in ledgers for booking in ledger.bookings):
        require("spyker privacy", "opacus")
    args.answer = [
        {
            "client": ledger.client,
            "epsilon": ledger.epsilon if isfinite(ledger.epsilon) else None,
            "delta": ledger.budget.delta,
            "trainings": ledger.booked,
            "epsilon_budget": ledger.budget.epsilon,
            "trainings_budget": ledger.budget.trainings,
            "spent": ledger.spent is not None,
        }
        for ledger in ledgers
    ]
    print(f"{'client':>6}  {'ε':>8}  {'of':>6}  {'δ':>7}  {'trainings':>9}  {'of':>6}  budget")
    for ledger, row in zip(ledgers, args.answer, strict=True):
        limit = "–" if row["epsilon_budget"] is None else f"{row['epsilon_budget']:g}"
        planned = "–" if row["trainings_budget"] is None else f"{row['trainings_budget']:,}"
        print(
            f"{ledger.client:>6}  {ledger.epsilon:>8.3f}  {limit:>6}  {row['delta']:>7g}  {ledger.booked:>9,}  "
            f"{planned:>6}  {ledger.spent or 'not spent'}"
        )
    return 0
