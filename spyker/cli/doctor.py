"""``spyker doctor``: is everything here that Spyker needs?"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spyker.cli.codes import FAILED
from spyker.cli.help import examples
from spyker.cli.options import add_data_dir
from spyker.cli.output import add_json
from spyker.plots.table import print_table


def add_doctor(commands: Any) -> None:
    """``spyker doctor``."""
    parser = commands.add_parser(
        "doctor",
        help="look whether everything is here that Spyker needs, and say what to do about what is not",
        description="Look at the installation, this machine, data folders and ports, and at the certificates and "
        "configurations of deployments. Exit code 0: nothing is wrong, though there may be notes about what only some "
        "commands need; 1: something is.",
    )
    parser.add_argument(
        "places",
        nargs="*",
        type=Path,
        metavar="PLACE",
        help="a server's configuration, or a folder that spyker certs or spyker up --keep made",
    )
    add_data_dir(parser)
    add_json(parser)
    examples(
        parser,
        "spyker doctor",
        "spyker doctor certs  # are the certificates valid, and for how long?",
        "spyker doctor paris.toml  # could this server start here?",
        "spyker doctor --quiet || echo something is wrong",
    )
    parser.set_defaults(command=command_doctor)


def command_doctor(args: argparse.Namespace) -> int:
    """Look at everything, and say what was found."""
    from spyker.api.datasets import data_from  # only now: nobody else needs what a doctor does
    from spyker.api.doctor import Severity, examine

    with data_from(args.data_dir):
        findings = list(examine(args.places))
    args.answer = [asdict(finding) | {"state": finding.state.value} for finding in findings]
    rows = [
        [each.state.value, each.what, each.found + (f"\n→ {each.remedy}" if each.remedy else "")] for each in findings
    ]
    print_table(["", "what", "found"], rows, words=3)
    bad = sum(finding.state is Severity.WRONG for finding in findings)
    print(f"{bad} thing{'' if bad == 1 else 's'} wrong" if bad else "nothing is wrong")
    return FAILED if bad else 0
