"""Drives the decisions about one elastic job: pods start at once, and calls into pods are answered by a test.

The launcher has a sidecar that acknowledges each host list in the round after it was recorded. The operator
can be stopped after any write of the Record or any action. Results of calls are then lost, as they are in the
real operator.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.plan.actions import Apply, Exec, ExecResult, ExecStatus, Remove
from argosy.plan.children import KubernetesObject
from argosy.workload.decide import decide
from argosy.workload.host_list import HostFile, HostList
from argosy.workload.index_set import IndexSet
from argosy.workload.model import (
    Dependency,
    Limits,
    Phase,
    ReplacementBudget,
    ReplacementPolicy,
    RestartPolicy,
    RestartScope,
    RolePolicy,
    Rules,
    Workload,
)
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.operation import Operation
from argosy.workload.plan import ConfirmPod, CreatePod, DeletePod, Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode
from argosy.workload.scale_request import ScaleRequest
from tests.support.workloads import NOW, existing_child, pod, role, workload

Answer = Callable[[Exec], ExecResult | None]

HOST_FILES = (
    HostFile("hostfile", "{host}:{slots}\n", paths=("/etc/edl/hostfile",), mode=0o600),
    HostFile("discover_hosts.sh", text="#!/bin/sh\n", paths=("/etc/edl/discover_hosts.sh",), mode=0o755),
    HostFile("deepspeed-hostfile", "{host} slots={slots}\n", paths=("/job/hostfile",), mode=0o600),
    HostFile("kubexec.sh", text="#!/bin/sh\nexit 1\n", config_map_mode=0o555),
)


def elastic_job(
    replicas: int = 2, restart: RestartPolicy = RestartPolicy.NEVER, min_listed: int = 1
) -> Workload:
    """A launcher that reads a host list, and workers of which lost ones are replaced under a new index."""
    launcher = replace(
        role("launcher", 1),
        depends_on=(Dependency("worker", holds_creation=True),),
        replacement=ReplacementPolicy(scope=RestartScope.JOB),
    )
    replacement = ReplacementPolicy(RestartScope.POD, next_index=True, budget=ReplacementBudget(limit=20))
    worker = replace(
        role("worker", replicas, restart, RolePolicy(ends=False, node_down_as_failed=True)),
        replacement=replacement,
    )
    host_list = HostList(
        *("worker", "launcher", "main", "main", "/etc/edl"),
        drain_check=("drained",),
        min_listed=min_listed,
        files=HOST_FILES,
        config_map="{job}-config",
    )
    rules = Rules(
        succeeded_when=(("launcher",),),
        failed_when=(("launcher",),),
        pod_services=("worker",),
        host_list=host_list,
    )
    return workload(launcher, worker, rules=rules, limits=Limits(restarts=0))


def done(call: Exec, exit_code: int = 0, stdout: bytes = b"") -> ExecResult:
    return ExecResult(call.key, ExecStatus.DONE, exit_code, stdout)


class ScaleSimulator:
    """One job on an API server whose caches are always up to date."""

    def __init__(self, job: Workload, answer: Answer = done) -> None:
        self.job = job
        self.answer = answer
        self.now: datetime = NOW
        self.stored: object = None
        self.pods: dict[str, ObservedPod] = {}
        self.children: dict[str, KubernetesObject] = {}
        self.requests: dict[str, ScaleRequest] = {}
        self.results: dict[str, ExecResult] = {}
        self.absent: set[tuple[str, int]] = set()
        self.pending: set[str] = set()
        """Names of pods that do not start."""
        self.in_burst = False
        """Whether many other jobs change at the same time."""
        self.acknowledges = True
        """Whether the sidecar of the launcher works."""
        self.calls: list[Exec] = []
        self.host_lists: list[tuple[int, ...]] = []
        self.created: list[str] = []
        self.finished: list[Operation] = []
        self.steps = 0
        self.stop_at: int | None = None
        """The number of the write or action before which the operator is killed."""

    @property
    def record(self) -> Record:
        record = decode(self.stored)
        assert record is not None
        return record

    def members(self) -> tuple[int, ...]:
        return tuple(self.record.role("worker").members)

    def listed(self) -> tuple[int, ...]:
        return tuple(self.record.role("worker").listed)

    def workers(self) -> list[int]:
        return sorted(item.index for item in self.pods.values() if item.role == "worker")

    def request(self, request: ScaleRequest) -> None:
        self.requests[request.id] = request

    def run(self, rounds: int = 12, seconds: float = 1.0) -> None:
        """Reconcile so often, with so much time between."""
        for _ in range(rounds):
            self.reconcile()
            self.now += timedelta(seconds=seconds)
            for name, item in self.pods.items():
                if item.phase == "Pending" and name not in self.pending:
                    self.pods[name] = replace(item, phase="Running")
            if self.acknowledges:
                self.acknowledge()
            self._show_choices()

    def acknowledge(self) -> None:
        """Acknowledge the recorded host list, as the sidecar of a running launcher does."""
        name, etag = self.job.hostname("launcher", 0), self.record.role("worker").listed_etag
        launcher = self.pods.get(name)
        if launcher is not None and launcher.phase == "Running":
            self.pods[name] = replace(launcher, hosts_ack=etag)

    def reconcile(self) -> Plan:
        before = decode(self.stored)
        observed = Observed(
            pods=tuple(self.pods.values()),
            children=tuple(self.children.values()),
            exec_results=dict(self.results),
            confirmed_absent=frozenset(self.absent),
            scale_requests=tuple(self.requests.values()),
            in_burst=self.in_burst,
        )
        plan = decide(self.job, before, observed, self.now)
        assert decide(self.job, before, observed, self.now) == plan
        if plan.record != before:
            if self._is_stopped():
                return plan
            self.stored = encode(plan.record)
        listed = self.listed()
        if not self.host_lists or self.host_lists[-1] != listed:
            self.host_lists.append(listed)
        wanted = {action.key for action in plan.actions if isinstance(action, Exec)}
        self.results = {key: result for key, result in self.results.items() if key in wanted}
        self.absent = set()
        for action in plan.actions:
            if self._is_stopped():
                break
            self._execute(action)
        return plan

    def _execute(self, action: object) -> None:
        match action:
            case CreatePod():
                name = self.job.hostname(action.role, action.index)
                assert name not in self.pods, f"{name} exists"
                self.created.append(name)
                self.pods[name] = replace(
                    pod(action.index, "Pending", role=action.role, attempt=action.attempt, created=self.now),
                    name=name,
                    uid=f"uid-{len(self.created)}",
                )
            case DeletePod():
                self.pods = {name: item for name, item in self.pods.items() if item.uid != action.uid}
            case ConfirmPod():
                self.absent.add((action.role, action.index))
            case Apply():
                self.children[action.child.name] = existing_child(action.child)
            case Remove():
                self.children.pop(action.name, None)
            case Exec():
                if action.key not in self.results:
                    self.calls.append(action)
                    if (result := self.answer(action)) is not None:
                        self.results[action.key] = result

    def _is_stopped(self) -> bool:
        """Kill the operator once, at the given step; results of calls are lost with it."""
        self.steps += 1
        if self.steps != self.stop_at:
            return False
        self.results = {}
        return True

    def _show_choices(self) -> None:
        """Write the chosen replicas to the status of each request, and remove finished requests."""
        for operation in self.record.operations:
            request = self.requests.get(operation.id)
            if request is None:
                continue
            if operation.finished:
                self.finished.append(operation)
                del self.requests[operation.id]
            else:
                self.requests[operation.id] = replace(request, shown=operation.index_set)

    def fail(self, name: str, exit_code: int = 1) -> None:
        self.pods[name] = replace(
            self.pods[name], phase="Failed", exit_code=exit_code, first_exit_code=exit_code
        )

    def finish_launcher(self, phase: str = "Succeeded") -> None:
        name = self.job.hostname("launcher", 0)
        self.pods[name] = replace(self.pods[name], phase=phase, exit_code=0 if phase == "Succeeded" else 1)


def running(job: Workload | None = None, answer: Answer = done) -> ScaleSimulator:
    """A simulator whose job runs with all its replicas listed."""
    simulator = ScaleSimulator(job or elastic_job(), answer)
    simulator.run(10)
    assert simulator.record.phase is Phase.RUNNING
    return simulator


def indexes(*numbers: int) -> IndexSet:
    return IndexSet.of(numbers)


def names(calls: Iterable[Exec]) -> list[str]:
    return [call.key.partition("/")[0] for call in calls]
