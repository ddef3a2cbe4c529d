"""Tests that a component is imported at once and starts when its input exists."""

import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from argosy.local import deferred_start
from argosy.local.state import State
from tests.support.waiting import wait_for


class Component(ModuleType):
    """Stands for a module with a `__main__`; notes what it was started with."""

    def __init__(self) -> None:
        super().__init__("component.__main__")
        self.started: list[list[str]] = []

    def main(self) -> int:
        self.started.append(sys.argv)
        return 3


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(sys, "argv", ["deferred_start", "component", "--state", str(tmp_path), "--port", "1"])
    monkeypatch.setitem(sys.modules, "component", ModuleType("component"))
    return State(tmp_path)


def test_the_component_starts_when_the_state_is_prepared(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = Component()
    monkeypatch.setitem(sys.modules, "component.__main__", component)
    glances: list[float] = []
    codes: list[int] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=glances.append)
    monkeypatch.setattr(deferred_start, "time", clock)
    waiting = threading.Thread(target=lambda: codes.append(deferred_start.main()))
    waiting.start()
    wait_for(lambda: len(glances) > 3, "it waits")
    assert component.started == []
    state.prepared.touch()
    waiting.join(10)
    assert component.started == [["component", "--state", str(state.folder), "--port", "1"]]
    assert codes == [3]


def test_the_component_does_not_start_if_the_state_is_never_prepared(
    state: State, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    component = Component()
    monkeypatch.setitem(sys.modules, "component.__main__", component)
    monkeypatch.setattr(deferred_start, "_PREPARED_TIMEOUT_SECONDS", 0.0)
    assert deferred_start.main() == 1
    assert component.started == []
    assert f"{state.prepared} does not exist" in capfd.readouterr().err
