"""What libraries write to standard error on their own, gRPC above all, as JSON lines of the log.

They know nothing of Python's logging: they write to file descriptor 2. So that becomes a pipe, whose lines a thread
puts into the log; the log itself, and in the end everything again, goes to what descriptor 2 was. Lines of a process
that dies at once, of a fault in such a library, may be lost with it.

gRPC says the same of every attempt to connect that fails, for as long as it fails: that is said once and counted,
unless its own variables (``GRPC_TRACE``, ``GRPC_VERBOSITY``) ask for more.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from spyker.net.json_log import JsonLog
from spyker.net.rate_limited_log import WHILE_SECONDS, RateLimitedLog

# Such as "E0000 00:00:1700000000.123456    1234 server.cc:56] what happened": how gRPC begins a line.
GRPC = re.compile(r"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ (?P<place>[\w./-]+:\d+)\] (?P<said>.*)")
LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "error"}
END = b"\0end"
LONGEST = 10_000  # bytes of one line; what is longer becomes several


def own_stderr() -> TextIO:
    """A stream to standard error that stays as it is, for a log, whatever becomes of descriptor 2."""
    sys.stderr.flush()
    return os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)


@contextlib.contextmanager
def lines_as_json(log: JsonLog) -> Iterator[None]:
    """While this lasts, what anybody writes to descriptor 2 comes out of the log, which must not write there itself."""
    sys.stderr.flush()
    before = os.dup(2)
    source, sink = os.pipe()
    os.dup2(sink, 2)
    os.close(sink)
    reader = threading.Thread(target=_read, args=(source, log), name="stderr", daemon=True)
    reader.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os.write(2, END + b"\n")  # others may hold the pipe open: an end of file may never come
        os.dup2(before, 2)
        os.close(before)
        reader.join(5.0)


def _read(source: int, log: JsonLog) -> None:
    limited_log, rest = RateLimitedLog(log), b""
    some = select.poll()
    some.register(source, select.POLLIN)
    with os.fdopen(source, "rb", buffering=0) as pipe:
        while True:
            if some.poll(1000 * WHILE_SECONDS):
                if not (more := pipe.read(LONGEST)):
                    return
                *lines, rest = (rest + more).split(b"\n")
                if len(rest) >= LONGEST:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    if line.endswith(END):
                        limited_log.sum_up(all=True)
                        return
                    if text := line.decode(errors="backslashreplace").rstrip():
                        tell(limited_log, text)
            limited_log.sum_up()


def tell(limited_log: RateLimitedLog, text: str) -> None:
    """One line, as the event ``log``."""
    if not (match := GRPC.fullmatch(text)):
        limited_log.log.warning("log", logger="stderr", message=text)
        return
    level, said = LEVELS[match["level"]], match["said"]
    if os.environ.get("GRPC_TRACE") or os.environ.get("GRPC_VERBOSITY"):
        getattr(limited_log.log, level)("log", reason=match["place"], logger="grpc", message=said)
    else:
        limited_log.say(level, "log", match["place"], said, logger="grpc", message=said)
