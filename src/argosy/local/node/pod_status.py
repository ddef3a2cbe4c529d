"""A pod's status as a kubelet writes it, from the pod and what its shim reports. Pure.

Conditions keep the time at which they last turned; a status equal to the one before is therefore equal in
every byte, and needs no write.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from argosy.kinds.meta import Json
from argosy.local.node.kinds import Container, Pod
from argosy.local.node.pod_state import ContainerReport, Ended, Report

_OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class Outcome(NamedTuple):
    """An end that the pod did not choose: a deadline, an eviction, a node that lost it."""

    reason: str
    message: str


class Situation(NamedTuple):
    """What the agent knows beside the shim's report."""

    address: str
    host_address: str
    now: datetime
    waiting: tuple[str, str] | None = None
    """Why containers cannot be created: reason and message."""
    outcome: Outcome | None = None
    terminating: bool = False


def pod_status(pod: Pod, report: Report | None, situation: Situation) -> Json:
    reports: Mapping[str, ContainerReport] = report["containers"] if report else {}
    init = [_init_status(pod, container, reports, situation) for container in pod.spec.init_containers]
    main = [_container_status(pod, container, reports, situation) for container in pod.spec.containers]
    phase = "Failed" if situation.outcome else _phase(pod, reports, bool(report and report["finished"]))
    started = pod.status.start_time or situation.now
    status: Json = {
        "phase": phase,
        "conditions": _conditions(pod, reports, report is not None, phase, situation),
        "hostIP": situation.host_address,
        "hostIPs": [{"ip": situation.host_address}],
        "startTime": _time(started),
        "qosClass": qos_class(pod),
        "containerStatuses": main,
    }
    if init:
        status["initContainerStatuses"] = init
    if report is not None and situation.address:
        status["podIP"] = situation.address
        status["podIPs"] = [{"ip": situation.address}]
    if situation.outcome:
        status["reason"], status["message"] = situation.outcome
    return status


def status_patch(pod: Pod, status: Json) -> Json:
    """As a strategic merge patch: conditions merge by type, so what one no longer has must be nulled."""
    held = {str(condition.get("type")): condition for condition in pod.status.conditions}
    conditions = status["conditions"]
    if not isinstance(conditions, list):
        return status
    return status | {
        "conditions": [
            condition | {key: None for key in held.get(str(condition["type"]), {}) if key not in condition}
            for condition in conditions
        ]
    }


def qos_class(pod: Pod) -> str:
    every = [*pod.spec.containers, *pod.spec.init_containers]
    named = [
        (dict(c.resources.requests), {k: v for k, v in c.resources.limits.items() if k in ("cpu", "memory")})
        for c in every
    ]
    if not any({"cpu", "memory"} & (set(requests) | set(limits)) for requests, limits in named):
        return "BestEffort"
    guaranteed = all(
        set(limits) == {"cpu", "memory"} and all(str(requests.get(k, v)) == str(v) for k, v in limits.items())
        for requests, limits in named
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _phase(pod: Pod, reports: Mapping[str, ContainerReport], finished: bool) -> str:
    main = [reports.get(container.name) for container in pod.spec.containers]
    policy = pod.spec.restart_policy
    for container in pod.spec.init_containers:
        report = reports.get(container.name)
        if report is None:
            return "Pending"
        if container.restart_policy == "Always":
            continue
        ended = report["ended"]
        if ended and ended["exit_code"] != 0 and (policy == "Never" or finished):
            return "Failed"
        if not ended or ended["exit_code"] != 0:
            return "Failed" if finished else "Pending"
    ends = [report["ended"] for report in main if report and report["ended"]]
    if finished or (len(ends) == len(main) and policy == "Never"):
        good = len(ends) == len(main) and all(end["exit_code"] == 0 for end in ends)
        return "Succeeded" if good else "Failed"
    if len(ends) == len(main) and policy == "OnFailure" and all(end["exit_code"] == 0 for end in ends):
        return "Succeeded"
    if any(report is None or _never_ran(report) for report in main):
        return "Pending"
    return "Running"


def _never_ran(report: ContainerReport) -> bool:
    return not report["running"] and report["ended"] is None and report["last"] is None


def _conditions(
    pod: Pod, reports: Mapping[str, ContainerReport], sandbox: bool, phase: str, situation: Situation
) -> list[Json]:
    over = phase in ("Succeeded", "Failed")
    initialized = all(_initialized(c, reports) for c in pod.spec.init_containers)
    waiting_init = [c.name for c in pod.spec.init_containers if not _initialized(c, reports)]
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    unready = [
        c.name
        for c in [*sidecars, *pod.spec.containers]
        if not (c.name in reports and reports[c.name]["ready"])
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
    held = {str(condition.get("type")): condition for condition in pod.status.conditions}
    conditions = [_condition(held.get(entry[0]), *entry, situation.now) for entry in wanted]
    scheduled = held.get("PodScheduled") or _condition(None, "PodScheduled", True, "", "", situation.now)
    others = [c for name, c in held.items() if name not in (*_OWN_CONDITIONS, "PodScheduled")]
    return [*conditions, scheduled, *others]


def _initialized(container: Container, reports: Mapping[str, ContainerReport]) -> bool:
    report = reports.get(container.name)
    if report is None:
        return False
    if container.restart_policy == "Always":
        return report["started"] or report["restarts"] > 0 or report["ended"] is not None
    return report["ended"] is not None and report["ended"]["exit_code"] == 0


def _condition(held: Json | None, type: str, status: bool, reason: str, message: str, now: datetime) -> Json:
    text = "True" if status else "False"
    since = held["lastTransitionTime"] if held and held.get("status") == text else _time(now)
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
    pod: Pod, container: Container, reports: Mapping[str, ContainerReport], situation: Situation
) -> Json:
    status = _container_status(pod, container, reports, situation)
    report = reports.get(container.name)
    if container.restart_policy != "Always" and report:
        status["ready"] = report["ended"] is not None and report["ended"]["exit_code"] == 0
    return status


def _container_status(
    pod: Pod, container: Container, reports: Mapping[str, ContainerReport], situation: Situation
) -> Json:
    report = reports.get(container.name)
    status: Json = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": bool(report and report["ready"]),
        "started": bool(report and report["started"]),
        "restartCount": report["restarts"] if report else 0,
        "state": _state(pod, report, situation),
        "lastState": {},
    }
    if report and (report["running"] or report["ended"] or report["last"]):
        status["containerID"] = _container_id(pod, container, report["restarts"])
        status["imageID"] = container.image
    if report:
        last = report["ended"] if report["waiting"] == "CrashLoopBackOff" else report["last"]
        if last:
            restarts = report["restarts"] - (0 if report["waiting"] else 1)
            status["lastState"] = {"terminated": _terminated(pod, container, last, restarts)}
    return status


def _state(pod: Pod, report: ContainerReport | None, situation: Situation) -> Json:
    if report is None:
        has_init = bool(pod.spec.init_containers)
        reason, message = situation.waiting or ("PodInitializing" if has_init else "ContainerCreating", "")
        waiting: Json = {"reason": reason}
        return {"waiting": waiting | ({"message": message} if message else {})}
    if report["running"]:
        return {"running": {"startedAt": _seconds(report["running"])}}
    if report["waiting"]:
        waiting = {"reason": report["waiting"]}
        if report["waiting_message"]:
            waiting["message"] = report["waiting_message"]
        return {"waiting": waiting}
    if report["ended"]:
        container = next(
            c for c in [*pod.spec.containers, *pod.spec.init_containers] if c.name == report["name"]
        )
        return {"terminated": _terminated(pod, container, report["ended"], report["restarts"])}
    return {"waiting": {"reason": "ContainerCreating"}}


def _terminated(pod: Pod, container: Container, ended: Ended, run: int) -> Json:
    state: Json = {
        "exitCode": ended["exit_code"],
        "reason": ended["reason"],
        "startedAt": _seconds(ended["started"]),
        "finishedAt": _seconds(ended["finished"]),
        "containerID": _container_id(pod, container, max(0, run)),
    }
    if ended["message"]:
        state["message"] = ended["message"]
    return state


def _container_id(pod: Pod, container: Container, run: int) -> str:
    return f"argosy://{pod.metadata.uid}/{container.name}/{run}"


def _seconds(value: float) -> str:
    return _time(datetime.fromtimestamp(value, UTC))


def _time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
