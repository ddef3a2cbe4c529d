import json
import logging
from collections.abc import Iterator

import pytest

from argosy.engine.logs import LogFormat, Logger, add_log_context, configure_logging, log_context


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def said(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> str:
    configure_logging(form)
    log = Logger("argosy.test")
    log.debug("not worth a line")
    log.info("a pod came", pod="a", count=2, odd={1})
    return capsys.readouterr().err


def test_json_has_every_field_whatever_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(said("json", capsys))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "argosy.test",
        "event": "a pod came",
        "pod": "a",
        "count": 2,
        "odd": [1],
    }


def test_text_reads_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert said("text", capsys).split(" ", 1)[1] == "info    a pod came pod=a count=2 odd={1}\n"


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_comes_with_its_traceback(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(form)
    try:
        raise ValueError("made up")
    except ValueError:
        Logger("argosy.test").exception("it broke", key="k")
    err = capsys.readouterr().err
    assert "ValueError: made up" in err
    assert "it broke" in err


def test_what_a_stretch_of_work_is_about_stands_in_all_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text")
    log = Logger("argosy.test")
    with log_context(object="default/a"):
        with log_context(step=1):
            log.info("inside")
        add_log_context(attempt=2)
        log.info("outside", pod="p")
    add_log_context(lost=True)
    log.info("after")
    said = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "info    inside object=default/a step=1",
        "info    outside object=default/a attempt=2 pod=p",
        "info    after",
    ]
