"""Structured logs: one JSON object per line, on standard error, with Python's logging."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO


class JsonLog(logging.LoggerAdapter[logging.Logger]):
    """A log of events with fields: ``log.info("stopped", version=3)``."""

    def __init__(self, stream: TextIO | None = None, **common: Any) -> None:
        """Create a log; the fields ``common`` are in every line."""
        handler = logging.StreamHandler(stream or sys.stderr)
        handler.setFormatter(JsonLines(common))
        logger = logging.Logger(
            "spyker", logging.INFO
        )  # outside the hierarchy, so that logs in one process are separate
        logger.addHandler(handler)
        super().__init__(logger)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Convert keyword arguments to fields."""
        return msg, {"extra": {"fields": kwargs}}

    def capture_all(self) -> None:
        """Write the warnings and library logs of this process to this log, too."""
        logging.getLogger().handlers[:] = self.logger.handlers
        logging.captureWarnings(True)


class JsonLines(logging.Formatter):
    """Formats a log record as a JSON object. Records of libraries are events ``log``."""

    def __init__(self, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._common = common

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level and event, then the common fields, then the event's fields."""
        fields = getattr(record, "fields", None)
        event = record.getMessage() if fields is not None else "log"
        if fields is None:
            fields = {"logger": record.name, "message": record.getMessage()}
            if record.exc_info:
                fields["traceback"] = self.formatException(record.exc_info)
        line = {"time": round(record.created, 3), "level": record.levelname.lower(), "event": event}
        return json.dumps(line | dict(self._common) | fields, default=str)
