from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.local.node.pod_state import ContainerState, PodState, Termination, waiting_state
from argosy.local.node.pod_status import PodFailure, StatusContext, pod_status, status_patch
from argosy.local.node.pod_types import Pod

NOW = datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC)
HERE = StatusContext(address="10.88.0.5", host_address="10.88.0.1", now=NOW)


def pod(
    restart: str = "Always", init: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), **status: object
) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {
                "restartPolicy": restart,
                "initContainers": [{"name": name} for name in init]
                + [{"name": name, "restartPolicy": "Always"} for name in sidecars],
                "containers": [{"name": "a", "image": "img"}, {"name": "b", "image": "img"}],
            },
            "status": status,
        },
        Pod,
    )


def ended(code: int, reason: str = "") -> Termination:
    why = reason or ("Error" if code else "Completed")
    return Termination(exit_code=code, signal=0, reason=why, message="", started=0.0, finished=10.0)


def container(name: str, state: str, restarts: int = 0) -> ContainerState:
    """R running and ready, N running and not ready, W waiting, a digit: ended so, C crash loop."""
    entry = waiting_state(name, "ContainerCreating" if state == "W" else "")
    entry["restarts"] = restarts
    if state in "RN":
        entry.update({"running": 5.0, "ready": state == "R", "started": True, "waiting": ""})
    elif state == "C":
        entry.update({"ended": ended(1), "waiting": "CrashLoopBackOff", "waiting_message": "back-off 10s"})
    elif state != "W":
        entry["ended"] = ended(int(state))
    return entry


def report(*, finished: bool = False, **states: str) -> PodState:
    return PodState(
        pid=1,
        start_time=1,
        address="10.88.0.5",
        containers={name: container(name, state) for name, state in states.items()},
        finished=finished,
        stopping=False,
        error="",
        notes=[],
    )


class Case(NamedTuple):
    pod: Pod
    report: PodState | None
    want_phase: str
    want: dict[str, str]
    """Conditions that matter here."""


CASES = {
    "all containers running and ready: Ready": Case(
        pod(),
        report(a="R", b="R"),
        "Running",
        {"Ready": "True", "ContainersReady": "True", "Initialized": "True"},
    ),
    "one container not ready: not Ready": Case(pod(), report(a="R", b="N"), "Running", {"Ready": "False"}),
    "no container has started: Pending": Case(pod(), report(a="W", b="W"), "Pending", {"Ready": "False"}),
    "one container has not started: Pending": Case(
        pod(), report(a="R", b="W"), "Pending", {"Ready": "False"}
    ),
    "init container running: not Initialized": Case(
        pod(init=("i",)), report(i="R", a="W", b="W"), "Pending", {"Initialized": "False", "Ready": "False"}
    ),
    "all succeeded with Never: Succeeded": Case(
        pod("Never"), report(a="0", b="0"), "Succeeded", {"Ready": "False", "Initialized": "True"}
    ),
    "one failed with Never, another running: Running": Case(
        pod("Never"), report(a="1", b="R"), "Running", {}
    ),
    "one failed with Never, all ended: Failed": Case(
        pod("Never"), report(finished=True, a="1", b="0"), "Failed", {"Ready": "False"}
    ),
    "all succeeded with OnFailure: Succeeded": Case(pod("OnFailure"), report(a="0", b="0"), "Succeeded", {}),
    "crash loop: Running": Case(pod(), report(a="C", b="R"), "Running", {"Ready": "False"}),
    "init container failed with Never: Failed": Case(
        pod("Never", init=("i",)),
        report(finished=True, i="1", a="W", b="W"),
        "Failed",
        {"Initialized": "False"},
    ),
    "sidecar started: Initialized": Case(
        pod(sidecars=("s",)), report(s="R", a="R", b="R"), "Running", {"Initialized": "True", "Ready": "True"}
    ),
}


def conditions(status: Json) -> dict[str, Json]:
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    return {entry["type"]: entry for entry in conditions}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_phase_and_conditions(case: Case) -> None:
    status = pod_status(case.pod, case.report, HERE)
    assert status["phase"] == case.want_phase
    assert {name: conditions(status)[name]["status"] for name in case.want} == case.want


def test_addresses_and_times() -> None:
    status = pod_status(pod(), report(a="R", b="R"), HERE)
    assert (status["podIP"], status["hostIP"]) == ("10.88.0.5", "10.88.0.1")
    assert status["podIPs"] == [{"ip": "10.88.0.5"}]
    assert status["startTime"] == "2026-05-01T12:00:30Z"


def test_crash_loop_shows_waiting_and_last_state() -> None:
    status = pod_status(pod(), report(a="C", b="R"), HERE)
    listed = status["containerStatuses"]
    assert isinstance(listed, list)
    assert listed[0]["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert listed[0]["lastState"]["terminated"]["exitCode"] == 1
    assert listed[0]["lastState"]["terminated"]["finishedAt"] == "1970-01-01T00:00:10Z"


def test_ready_condition_names_unready_containers() -> None:
    ready = conditions(pod_status(pod(), report(a="N", b="N"), HERE))["Ready"]
    assert ready["reason"] == "ContainersNotReady"
    assert ready["message"] == "containers with unready status: [a b]"


def test_unchanged_condition_keeps_its_transition_time() -> None:
    held = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T11:00:00Z"}
    status = pod_status(pod(conditions=[held]), report(a="R", b="R"), HERE)
    assert conditions(status)["Ready"]["lastTransitionTime"] == "2026-05-01T11:00:00Z"


def test_conditions_of_other_managers_are_kept() -> None:
    status = pod_status(pod(conditions=[{"type": "DisruptionTarget", "status": "True"}]), None, HERE)
    assert "DisruptionTarget" in conditions(status)


def test_removed_fields_of_a_condition_are_null_in_the_patch() -> None:
    held = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "x"}
    manifest = pod(conditions=[held])
    patch = status_patch(manifest, pod_status(manifest, report(a="R", b="R"), HERE))
    assert conditions(patch)["Ready"]["reason"] is None
    assert conditions(patch)["Ready"]["message"] is None


def test_missing_reference_is_the_containers_waiting_reason() -> None:
    situation = HERE._replace(waiting=("CreateContainerConfigError", 'configmap "x" not found'))
    status = pod_status(pod(), None, situation)
    listed = status["containerStatuses"]
    assert isinstance(listed, list)
    assert listed[0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert status["phase"] == "Pending"


def test_pod_failure_sets_phase_and_reason() -> None:
    status = pod_status(
        pod(), report(a="R", b="R"), HERE._replace(failure=PodFailure("DeadlineExceeded", "too long"))
    )
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
