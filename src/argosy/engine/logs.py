"""Log lines: an event in words, and beside it, as fields, what it is about.

A thin face over the standard library's logging. Every process of ours loads it, so it loads nothing itself:
a structured-logging library with its terminal rendering took a quarter of a second of each process's start.

Fields that hold for all lines of a stretch of work, the object that it is about above all, are named once, by
`about`; whatever is logged meanwhile has them, in tasks that it starts too.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import msgspec

LogFormat = Literal["json", "text"]

_about: ContextVar[dict[str, object] | None] = ContextVar("about", default=None)


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Lines written inside have these fields."""
    token = _about.set({**(_about.get() or {}), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def add_log_context(**fields: object) -> None:
    """From now on until the end of the `about` around it, these fields too: what is found out on the way."""
    known = _about.get()
    if known is not None:
        known.update(fields)


class Logger:
    """What a module says, under its own name."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._say(logging.DEBUG, event, None, fields)

    def info(self, event: str, **fields: object) -> None:
        self._say(logging.INFO, event, None, fields)

    def warning(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        self._say(logging.WARNING, event, exc_info, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        self._say(logging.ERROR, event, exc_info, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error, with the traceback of the exception being handled."""
        self._say(logging.ERROR, event, sys.exc_info()[1], fields)

    def _say(self, level: int, event: str, error: BaseException | None, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            known = _about.get()
            extra = {"fields": {**known, **fields} if known else fields}
            self._logger.log(level, event, exc_info=error, extra=extra)


def configure_logging(form: LogFormat, level: str = "info") -> None:
    """Send every log line of this process to standard error, as JSON for machines or as text for people."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.getLevelNamesMapping().get(level.upper(), logging.INFO))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "timestamp": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", {})
    return fields if isinstance(fields, dict) else {}


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
