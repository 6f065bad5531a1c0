"""``spyker dash``, ``spyker report``, and the option ``--dashboard`` of other commands."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from spyker.api.output_folders import OutputFolder
from spyker.cli.help import examples
from spyker.dashboard.run_list import check_runs
from spyker.errors import UsageError
from spyker.extras import EXTRAS, require
from spyker.records import write_atomically

PORT = 8787
TOKEN = "SPYKER_DASH_TOKEN"
SHORTEST = 12  # characters of a token
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_dash(commands: Any) -> None:
    """``spyker dash``."""
    parser = commands.add_parser("dash", help="show runs in a browser, finished or in progress")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder created by run, compare, serve or up")
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help=f"port; 0: any free port; default: {PORT}, or a free port if that is taken",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="address to listen on; one that is not loopback needs a token"
    )
    parser.add_argument(
        "--token", metavar="T", help=f"access token for other machines; prefer the environment variable {TOKEN}"
    )
    examples(
        parser,
        "spyker dash runs/first",
        "spyker dash runs/all/stride runs/all/spyker  # side by side",
        "spyker dash runs/first --host 0.0.0.0  # with SPYKER_DASH_TOKEN set to a long secret",
    )
    parser.set_defaults(command=command_dash)


def command_dash(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    require("dash", *EXTRAS["dashboard"])
    token = args.token or os.environ.get(TOKEN)
    check_token(args.host, token)
    if args.port is not None and not 0 <= args.port <= 65535:
        raise UsageError("--port", f"{args.port} is not allowed", "Give a port from 0 to 65535")
    check_runs(args.runs)
    from spyker.dashboard.http_server import DashboardServer

    port = PORT if args.port is None else args.port
    try:
        try:
            server = DashboardServer(args.runs, args.host, port, token)
        except OSError:
            if args.port is not None:
                raise
            server = DashboardServer(args.runs, args.host, 0, token)
    except OSError as error:
        place = f"{port} on {args.host} cannot be used ({error.strerror})"
        raise UsageError("--port", place, "Choose another port, or 0 for any free port") from None
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with server:
        suffix = "?token=…" if token else ""
        print(f"page: {server.url}{suffix}  ·  Ctrl-C stops it", flush=True)
        try:
            ended.wait()
        except KeyboardInterrupt:
            print()
    return 0


def check_token(host: str, token: str | None) -> None:
    """Require an access token if other machines can reach the page."""
    if host in LOOPBACK and not token:
        return
    if not token:
        remedy = f"Set {TOKEN} to at least {SHORTEST} characters, and open the page with ?token=…"
        raise UsageError("--host", f"{host} is not allowed without a token: other machines can reach it", remedy)
    if len(token) < SHORTEST:
        raise UsageError("--token", f"{len(token)} characters are not enough", f"Use at least {SHORTEST}")


def add_report(commands: Any) -> None:
    """``spyker report``."""
    parser = commands.add_parser("report", help="write runs into one self-contained HTML file")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder created by run, compare or merge")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    parser.add_argument(
        "--window",
        metavar="A-B",
        help="interval in seconds that can be replayed event by event; default: the first exchanges",
    )
    examples(
        parser,
        "spyker report runs/first",
        "spyker report runs/all/stride runs/all/spyker --out comparison.html --window 0-3",
    )
    parser.set_defaults(command=command_report)


def command_report(args: argparse.Namespace) -> int:
    """Write the report."""
    window = None if args.window is None else read_window(args.window)
    check_runs(args.runs)
    if args.out.is_dir():
        raise UsageError("--out", f"{args.out} is a folder", "Name a file, such as report.html")
    from spyker.dashboard.report import report

    with OutputFolder(args.out.parent) as place:
        text = report(args.runs, window)
        place.keep()
        write_atomically(args.out, text)
    print(f"{args.out}  ({len(text.encode()) / 1e6:.1f} MB)")
    return 0


def read_window(text: str) -> tuple[float, float]:
    """``2-4.5``."""
    try:
        start, end = map(float, text.split("-"))
    except ValueError:
        start, end = 0.0, 0.0
    if not 0 <= start < end < 1e12:
        raise UsageError("--window", f"{text!r} is not allowed", "Write two times in seconds, such as 2-4.5")
    return start, end


# --- The option --dashboard ------------------------------------------------------------------------------------------


def add_dashboard(parser: argparse.ArgumentParser) -> None:
    """``--dashboard``, on commands that make a run."""
    parser.add_argument("--dashboard", action="store_true", help="show the run in a browser on this machine")


class Dashboard:
    """The page of a run in progress, in a process of its own that reads the record.

    A context manager, which does nothing unless ``wanted``. In a terminal the page stays open after the run until
    Ctrl-C; otherwise it ends with the command.
    """

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._process: Any = None
        if wanted:
            require("--dashboard", *EXTRAS["dashboard"])

    def __enter__(self) -> Dashboard:
        return self

    def show(self, *folders: Path) -> None:
        """Show these records, which need not exist yet."""
        if not self._wanted:
            return
        from spyker.dashboard.child_process import DashboardProcess

        port = PORT if self._process is None else self._process.port
        self._end()
        self._process = DashboardProcess(folders, port)
        print(f"page: {self._process.url}", file=sys.stderr, flush=True)

    def stay(self, *folders: Path) -> None:
        """Keep the page open after the run; ``folders`` are the final places of the records."""
        if self._process is not None and sys.stdin.isatty() and sys.stdout.isatty():
            if folders:
                self.show(*folders)
            print(f"page: {self._process.url}  ·  Ctrl-C stops it", flush=True)
            try:
                self._process.wait()
            except KeyboardInterrupt:
                print()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def __exit__(self, *error: object) -> None:
        self._end()
