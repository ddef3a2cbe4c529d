import json
import logging
from collections.abc import Iterator

import pytest

from argosy.engine.logs import LogFormat, Logger, add_log_context, configure_logging, log_context


@pytest.fixture(autouse=True)
def _restore_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def log_one_line(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> str:
    configure_logging(log_format)
    log = Logger("argosy.test")
    log.debug("below the level")
    log.info("pod created", pod="a", count=2, odd={1})
    return capsys.readouterr().err


def test_json_line_has_all_fields_of_any_type(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(log_one_line("json", capsys))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "argosy.test",
        "event": "pod created",
        "pod": "a",
        "count": 2,
        "odd": [1],
    }


def test_text_line_has_level_event_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert log_one_line("text", capsys).split(" ", 1)[1] == "info    pod created pod=a count=2 odd={1}\n"


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_exception_is_logged_with_traceback(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(log_format)
    try:
        raise ValueError("made up")
    except ValueError:
        Logger("argosy.test").exception("update failed", key="k")
    err = capsys.readouterr().err
    assert "ValueError: made up" in err
    assert "update failed" in err


def test_lines_inside_log_context_have_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text")
    log = Logger("argosy.test")
    with log_context(object="default/a"):
        with log_context(step=1):
            log.info("inside")
        add_log_context(attempt=2)
        log.info("outside", pod="p")
    add_log_context(lost=True)
    log.info("after")
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "info    inside object=default/a step=1",
        "info    outside object=default/a attempt=2 pod=p",
        "info    after",
    ]
