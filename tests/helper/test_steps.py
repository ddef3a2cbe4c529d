"""Tests for how often the step of a program is passed on to the operator."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from argosy.helper.endpoint import Endpoint
from argosy.helper.steps import LAST_ATTEMPTS, REPORT_SECONDS, StepReporter, read_step


class Operator(Endpoint):
    """Remembers which steps are reported to it."""

    def __init__(self) -> None:
        self.steps: list[object] = []
        self.problem = ""

    def post_json(self, path: str, body: Mapping[str, object], timeout: float) -> str:
        assert path == "checkpoints/step"
        assert {**body, "step": 0} == {"pod": "a-worker-0", "uid": "u", "step": 0}
        self.steps.append(body["step"])
        return self.problem


class Pod:
    """The file of a program, and the sidecar beside it."""

    def __init__(self, folder: Path) -> None:
        self.operator = Operator()
        self.path = folder / "step"
        self.time = 0.0
        self.pauses = 0
        pod = {"pod": "a-worker-0", "uid": "u"}
        self.reporter = StepReporter(self.operator, self.path, pod, lambda: self.time, self._pause)

    def look(self, step: int, at: float, *, is_last: bool = False) -> None:
        self.path.write_text(f"{step}\n")
        self.time = at
        self.reporter.look(is_last=is_last)

    def _pause(self, _seconds: float) -> None:
        self.pauses += 1


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_step_is_reported_at_the_start_and_once_a_minute(pod: Pod) -> None:
    for second in range(int(2 * REPORT_SECONDS) + 1):
        pod.look(second * 10, second)
    assert pod.operator.steps == [0, 600, 1200]


def test_step_that_stays_is_reported_once(pod: Pod) -> None:
    pod.look(5, 0)
    pod.look(5, 1000)
    pod.look(5, 1001, is_last=True)
    assert pod.operator.steps == [5]


def test_training_that_goes_back_is_reported_at_once(pod: Pod) -> None:
    pod.look(500, 0)
    pod.look(400, 1)
    assert pod.operator.steps == [500, 400]


def test_last_step_is_reported_at_the_end(pod: Pod) -> None:
    pod.look(1, 0)
    pod.look(77, 3, is_last=True)
    assert pod.operator.steps == [1, 77]


def test_failed_report_is_tried_again_a_minute_later_and_at_the_end_at_once(pod: Pod) -> None:
    pod.operator.problem = "503 not ready"
    pod.look(1, 0)
    pod.look(2, 1)
    assert pod.operator.steps == [1]
    pod.look(3, 2, is_last=True)
    assert pod.operator.steps == [1, *[3] * LAST_ATTEMPTS]
    assert pod.pauses == LAST_ATTEMPTS - 1


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 30, "1" * 100, "\udcff"])
def test_file_without_a_number_is_no_step(tmp_path: Path, text: str) -> None:
    path = tmp_path / "step"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert read_step(path) is None


def test_pod_without_a_file_reports_nothing(tmp_path: Path) -> None:
    assert read_step(tmp_path / "step") is None
    operator = Operator()
    StepReporter(operator, None, {}).look(is_last=True)
    assert not operator.steps
