"""The row of a pod in tables.

STATUS is not the phase: it is derived from the states of containers in a fixed order (init containers first,
then the last container with a reason), so that users see `CrashLoopBackOff` or `Init:0/1`.
"""

from datetime import datetime

from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import Column, condition, created, human_duration, name, parse_time
from argosy.local.schema.unstructured import get_int, get_map, get_maps, get_str

POD_COLUMNS = (
    Column(name="Name", format="name"),
    *(Column(name=title) for title in ("Ready", "Status", "Restarts", "Age")),
    *(Column(name=title, priority=1) for title in ("IP", "Node", "Nominated Node", "Readiness Gates")),
)


def pod_cells(pod: Json, now: datetime) -> list[object]:
    """Return the cells of a pod's row, wide ones included."""
    summary = _Summary(pod)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart is not None:
        restarts += f" ({human_duration((now - summary.last_restart).total_seconds())} ago)"
    addresses = get_maps(pod, "status", "podIPs")
    return [
        name(pod),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        restarts,
        created(pod, now),
        get_str(addresses[0], "ip") if addresses else "<none>",
        get_str(pod, "spec", "nodeName") or "<none>",
        get_str(pod, "status", "nominatedNodeName") or "<none>",
        _gates(pod),
    ]


class _Summary:
    """A summary of the container statuses of a pod."""

    def __init__(self, pod: Json) -> None:
        self.ready = 0
        self.restarts = 0
        self.last_restart: datetime | None = None
        self.reason = _first_reason(pod)
        init_specs = {get_str(c, "name"): c for c in get_maps(pod, "spec", "initContainers")}
        self._sidecars = {n for n, c in init_specs.items() if c.get("restartPolicy") == "Always"}
        self.total = len(get_maps(pod, "spec", "containers")) + len(self._sidecars)
        self._sidecar_restarts = 0
        self._sidecar_last: datetime | None = None
        initializing = self._init(pod, len(init_specs))
        if not initializing or condition(pod, "Initialized") == "True":
            self._main(pod)
        if get_map(pod, "metadata").get("deletionTimestamp"):
            if get_str(pod, "status", "reason") == "NodeLost":
                self.reason = "Unknown"
            elif get_str(pod, "status", "phase") not in ("Succeeded", "Failed"):
                self.reason = "Terminating"

    def _init(self, pod: Json, count: int) -> bool:
        """Add the init containers; return whether the pod is initializing."""
        for index, status in enumerate(get_maps(pod, "status", "initContainerStatuses")):
            sidecar = get_str(status, "name") in self._sidecars
            self.restarts += get_int(status, "restartCount")
            self.last_restart = _later(self.last_restart, status)
            if sidecar:
                self._sidecar_restarts += get_int(status, "restartCount")
                self._sidecar_last = _later(self._sidecar_last, status)
            terminated = get_map(status, "state").get("terminated")
            waiting = get_str(status, "state", "waiting", "reason")
            if isinstance(terminated, dict) and get_int(terminated, "exitCode") == 0:
                continue
            if sidecar and status.get("started") is True:
                self.ready += status.get("ready") is True
                continue
            if isinstance(terminated, dict):
                self.reason = f"Init:{_termination_reason(terminated)}"
            elif waiting and waiting != "PodInitializing":
                self.reason = f"Init:{waiting}"
            else:
                self.reason = f"Init:{index}/{count}"
            return True
        return False

    def _main(self, pod: Json) -> None:
        self.restarts, self.last_restart = self._sidecar_restarts, self._sidecar_last
        running, error = False, ""
        for status in reversed(get_maps(pod, "status", "containerStatuses")):
            self.restarts += get_int(status, "restartCount")
            self.last_restart = _later(self.last_restart, status)
            state = get_map(status, "state")
            terminated = state.get("terminated")
            waiting = get_str(state, "waiting", "reason")
            if waiting:
                self.reason = waiting
            elif isinstance(terminated, dict):
                self.reason = _termination_reason(terminated)
                if get_int(terminated, "exitCode"):
                    error = self.reason
            elif status.get("ready") is True and isinstance(state.get("running"), dict):
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and condition(pod, "Ready") == "True":
                self.reason = "Running"
            elif error:
                self.reason = error
            elif running:
                self.reason = "NotReady"


def _first_reason(pod: Json) -> str:
    for entry in get_maps(pod, "status", "conditions"):
        if entry.get("type") == "PodScheduled" and entry.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return get_str(pod, "status", "reason") or get_str(pod, "status", "phase")


def _termination_reason(terminated: Json) -> str:
    if get_str(terminated, "reason"):
        return get_str(terminated, "reason")
    if get_int(terminated, "signal"):
        return f"Signal:{get_int(terminated, 'signal')}"
    return f"ExitCode:{get_int(terminated, 'exitCode')}"


def _later(latest: datetime | None, status: Json) -> datetime | None:
    finished = parse_time(get_map(status, "lastState", "terminated").get("finishedAt"))
    if latest is None or (finished is not None and finished > latest):
        return finished or latest
    return latest


def _gates(pod: Json) -> str:
    gates = get_maps(pod, "spec", "readinessGates")
    if not gates:
        return "<none>"
    true = sum(condition(pod, get_str(gate, "conditionType")) == "True" for gate in gates)
    return f"{true}/{len(gates)}"
