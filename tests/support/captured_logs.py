"""Captures what is logged inside a `with` block, so that tests can check it."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def captured_lines() -> Iterator[list[dict[str, object]]]:
    """All log lines of the block: the fields of each with its `event` and `log_level`."""
    lines: list[dict[str, object]] = []
    handler = _Collector(lines)
    logger = logging.getLogger("argosy")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _Collector(logging.Handler):
    def __init__(self, lines: list[dict[str, object]]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        line = {"event": record.getMessage(), "log_level": record.levelname.lower()}
        self._lines.append({**fields, **line})
