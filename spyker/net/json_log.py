"""Structured logs: one JSON object a line, on standard error, through Python's own logging."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO


class JsonLog(logging.LoggerAdapter[logging.Logger]):
    """Says what happened, an event and whatever belongs to it: ``log.info("stopped", version=3)``."""

    def __init__(self, stream: TextIO | None = None, **always: Any) -> None:
        """``always`` is in every line."""
        handler = logging.StreamHandler(stream or sys.stderr)
        handler.setFormatter(JsonLines(always))
        logger = logging.Logger("spyker", logging.INFO)  # apart from the tree: several in one process stay apart
        logger.addHandler(handler)
        super().__init__(logger)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """All keywords are fields."""
        return msg, {"extra": {"fields": kwargs}}

    def speak_for_all(self) -> None:
        """Be the log of this process: warnings, and what libraries log, come out here, too."""
        logging.getLogger().handlers[:] = self.logger.handlers
        logging.captureWarnings(True)


class JsonLines(logging.Formatter):
    """One JSON object for a record. A record that is not ours is an event ``log``."""

    def __init__(self, always: Mapping[str, Any]) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Time, level and event first, then what is always said, then the fields."""
        fields = getattr(record, "fields", None)
        event = record.getMessage() if fields is not None else "log"
        if fields is None:
            fields = {"logger": record.name, "message": record.getMessage()}
            if record.exc_info:
                fields["traceback"] = self.formatException(record.exc_info)
        line = {"time": round(record.created, 3), "level": record.levelname.lower(), "event": event}
        return json.dumps(line | dict(self._always) | fields, default=str)
