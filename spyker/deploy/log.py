"""Structured logs: one JSON object a line, on standard error."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO


class Log:
    """Says what happened: an event, and whatever numbers belong to it."""

    def __init__(self, stream: TextIO | None = None, **always: Any) -> None:
        self._stream = stream or sys.stderr
        self._always = always

    def info(self, event: str, **fields: Any) -> None:
        """Something worth knowing."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that somebody may want to look into."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that ends this process."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        now = round(time.time(), 3)
        line = {"time": now, "level": level, "event": event, **self._always, **fields}
        self._stream.write(json.dumps(line, default=str) + "\n")
        self._stream.flush()
