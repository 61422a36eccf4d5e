"""Logging: one line per event, message plus key-values, JSON in a pod and plain text for people."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from slackwater.timestamps import format_time

_FIELD = "slackwater_fields"


def kv(**fields: Any) -> dict[str, Any]:
    """Key-values of one log event, for the ``extra`` argument of a logger's methods."""
    return {_FIELD: fields}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": format_time(datetime.fromtimestamp(record.created, UTC), micros=True),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELD, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={value!s}" for key, value in getattr(record, _FIELD, {}).items())
        stamp = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        line = f"{stamp} {record.levelname[0]} {record.name}: {record.getMessage()}" + (f"  {fields}" if fields else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def setup(form: Literal["json", "text"] = "json", level: str = "INFO") -> None:
    """Send every log line to stderr in ``form``. Call once, at the start of a process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
