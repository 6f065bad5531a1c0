"""The dashboard as a child process of a command: ``python -m spyker.dashboard.child_process PORT FOLDER…``.

The child ends when the pipe to its parent is closed, so it never outlives the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

END_SECONDS = 10.0


class DashboardProcess:
    """The parent's handle of the child process."""

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        """Start the process on this port, or on any free port if it is taken."""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "spyker.dashboard.child_process",
                str(port),
                *(str(folder.absolute()) for folder in folders),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not reach the child
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        if not self.url:
            raise RuntimeError(f"the dashboard did not start (exit code {self._process.wait()})")
        self.port = int(self.url.rstrip("/").rpartition(":")[2])

    def wait(self) -> None:
        """Wait until the process ends; it does not end by itself."""
        self._process.wait()

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(argv: Sequence[str]) -> int:
    """Serve the dashboard on a port until standard input is closed."""
    from spyker.dashboard.http_server import DashboardServer

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folders, port = [Path(name) for name in argv[1:]], int(argv[0])
    try:
        server = DashboardServer(folders, "127.0.0.1", port)
    except OSError:
        server = DashboardServer(folders, "127.0.0.1", 0)
    with server:
        print(server.url, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
