"""Builds a pod's status as the kubelet does, from the pod and the state its shim reports. Pure.

Conditions keep their last transition time, so an unchanged status is equal and needs no write.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from argosy.kinds.meta import Json
from argosy.local.node.pod_state import ContainerState, PodState, Termination
from argosy.local.node.pod_types import Container, Pod

_OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class PodFailure(NamedTuple):
    """Why a pod failed other than by its containers: a deadline, an eviction or a lost node."""

    reason: str
    message: str


class StatusContext(NamedTuple):
    """What the agent knows in addition to the shim's report."""

    address: str
    host_address: str
    now: datetime
    waiting: tuple[str, str] | None = None
    """Why containers cannot be created: reason and message."""
    failure: PodFailure | None = None
    terminating: bool = False


def pod_status(pod: Pod, state: PodState | None, context: StatusContext) -> Json:
    states: Mapping[str, ContainerState] = state["containers"] if state else {}
    init = [_init_status(pod, container, states, context) for container in pod.spec.init_containers]
    main = [_container_status(pod, container, states, context) for container in pod.spec.containers]
    phase = "Failed" if context.failure else _phase(pod, states, bool(state and state["finished"]))
    started = pod.status.start_time or context.now
    status: Json = {
        "phase": phase,
        "conditions": _conditions(pod, states, state is not None, phase, context),
        "hostIP": context.host_address,
        "hostIPs": [{"ip": context.host_address}],
        "startTime": _time(started),
        "containerStatuses": main,
    }
    if init:
        status["initContainerStatuses"] = init
    if state is not None and context.address:
        status["podIP"] = context.address
        status["podIPs"] = [{"ip": context.address}]
    if context.failure:
        status["reason"], status["message"] = context.failure
    return status


def status_patch(pod: Pod, status: Json) -> Json:
    """Return a strategic merge patch. Conditions merge by type, so fields that were removed become null."""
    existing = {str(condition.get("type")): condition for condition in pod.status.conditions}
    conditions = status["conditions"]
    if not isinstance(conditions, list):
        return status
    return status | {
        "conditions": [
            condition
            | {key: None for key in existing.get(str(condition["type"]), {}) if key not in condition}
            for condition in conditions
        ]
    }


def _phase(pod: Pod, states: Mapping[str, ContainerState], finished: bool) -> str:
    main = [states.get(container.name) for container in pod.spec.containers]
    policy = pod.spec.restart_policy
    for container in pod.spec.init_containers:
        state = states.get(container.name)
        if state is None:
            return "Pending"
        if container.restart_policy == "Always":
            continue
        termination = state["ended"]
        if termination and termination["exit_code"] != 0 and (policy == "Never" or finished):
            return "Failed"
        if not termination or termination["exit_code"] != 0:
            return "Failed" if finished else "Pending"
    ends = [state["ended"] for state in main if state and state["ended"]]
    if finished or (len(ends) == len(main) and policy == "Never"):
        good = len(ends) == len(main) and all(end["exit_code"] == 0 for end in ends)
        return "Succeeded" if good else "Failed"
    if len(ends) == len(main) and policy == "OnFailure" and all(end["exit_code"] == 0 for end in ends):
        return "Succeeded"
    if any(state is None or _never_ran(state) for state in main):
        return "Pending"
    return "Running"


def _never_ran(state: ContainerState) -> bool:
    return not state["running"] and state["ended"] is None and state["last"] is None


def _conditions(
    pod: Pod, states: Mapping[str, ContainerState], sandbox: bool, phase: str, context: StatusContext
) -> list[Json]:
    over = phase in ("Succeeded", "Failed")
    initialized = all(_is_initialized(c, states) for c in pod.spec.init_containers)
    waiting_init = [c.name for c in pod.spec.init_containers if not _is_initialized(c, states)]
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    unready = [
        c.name
        for c in [*sidecars, *pod.spec.containers]
        if not (c.name in states and states[c.name]["ready"])
    ]
    if phase == "Succeeded":
        reason, message = "PodCompleted", ""
    elif phase == "Failed":
        reason, message = "PodFailed", ""
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    else:
        reason, message = "", ""
    ready = not over and not unready and initialized
    wanted: list[tuple[str, bool, str, str]] = [
        ("PodReadyToStartContainers", sandbox and not over, "", ""),
        (
            "Initialized",
            initialized or phase == "Succeeded",
            "" if initialized else "PodCompleted" if phase == "Succeeded" else "ContainersNotInitialized",
            "" if initialized else f"containers with incomplete status: [{' '.join(waiting_init)}]",
        ),
        ("Ready", ready, reason, message),
        ("ContainersReady", ready, reason, message),
    ]
    if initialized and phase == "Succeeded":
        wanted[1] = ("Initialized", True, "PodCompleted", "")
    existing = {str(condition.get("type")): condition for condition in pod.status.conditions}
    conditions = [_condition(existing.get(entry[0]), *entry, context.now) for entry in wanted]
    scheduled = existing.get("PodScheduled") or _condition(None, "PodScheduled", True, "", "", context.now)
    others = [c for name, c in existing.items() if name not in (*_OWN_CONDITIONS, "PodScheduled")]
    return [*conditions, scheduled, *others]


def _is_initialized(container: Container, states: Mapping[str, ContainerState]) -> bool:
    state = states.get(container.name)
    if state is None:
        return False
    if container.restart_policy == "Always":
        return state["started"] or state["restarts"] > 0 or state["ended"] is not None
    return state["ended"] is not None and state["ended"]["exit_code"] == 0


def _condition(
    existing: Json | None, type: str, status: bool, reason: str, message: str, now: datetime
) -> Json:
    text = "True" if status else "False"
    since = existing["lastTransitionTime"] if existing and existing.get("status") == text else _time(now)
    condition: Json = {
        "type": type,
        "status": text,
        "lastProbeTime": None,
        "lastTransitionTime": since,
    }
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _init_status(
    pod: Pod, container: Container, states: Mapping[str, ContainerState], context: StatusContext
) -> Json:
    status = _container_status(pod, container, states, context)
    state = states.get(container.name)
    if container.restart_policy != "Always" and state:
        status["ready"] = state["ended"] is not None and state["ended"]["exit_code"] == 0
    return status


def _container_status(
    pod: Pod, container: Container, states: Mapping[str, ContainerState], context: StatusContext
) -> Json:
    state = states.get(container.name)
    status: Json = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": bool(state and state["ready"]),
        "started": bool(state and state["started"]),
        "restartCount": state["restarts"] if state else 0,
        "state": _state(pod, state, context),
        "lastState": {},
    }
    if state and (state["running"] or state["ended"] or state["last"]):
        status["containerID"] = _container_id(pod, container, state["restarts"])
        status["imageID"] = container.image
    if state:
        last = state["ended"] if state["waiting"] == "CrashLoopBackOff" else state["last"]
        if last:
            restarts = state["restarts"] - (0 if state["waiting"] else 1)
            status["lastState"] = {"terminated": _terminated_state(pod, container, last, restarts)}
    return status


def _state(pod: Pod, state: ContainerState | None, context: StatusContext) -> Json:
    if state is None:
        has_init = bool(pod.spec.init_containers)
        reason, message = context.waiting or ("PodInitializing" if has_init else "ContainerCreating", "")
        waiting: Json = {"reason": reason}
        return {"waiting": waiting | ({"message": message} if message else {})}
    if state["running"]:
        return {"running": {"startedAt": _seconds(state["running"])}}
    if state["waiting"]:
        waiting = {"reason": state["waiting"]}
        if state["waiting_message"]:
            waiting["message"] = state["waiting_message"]
        return {"waiting": waiting}
    if state["ended"]:
        container = next(
            c for c in [*pod.spec.containers, *pod.spec.init_containers] if c.name == state["name"]
        )
        return {"terminated": _terminated_state(pod, container, state["ended"], state["restarts"])}
    return {"waiting": {"reason": "ContainerCreating"}}


def _terminated_state(pod: Pod, container: Container, termination: Termination, run: int) -> Json:
    state: Json = {
        "exitCode": termination["exit_code"],
        "reason": termination["reason"],
        "startedAt": _seconds(termination["started"]),
        "finishedAt": _seconds(termination["finished"]),
        "containerID": _container_id(pod, container, max(0, run)),
    }
    if termination["message"]:
        state["message"] = termination["message"]
    return state


def _container_id(pod: Pod, container: Container, run: int) -> str:
    return f"argosy://{pod.metadata.uid}/{container.name}/{run}"


def _seconds(value: float) -> str:
    return _time(datetime.fromtimestamp(value, UTC))


def _time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
