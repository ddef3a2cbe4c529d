import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload import wait_reasons
from argosy.workload.gang import Admission
from argosy.workload.model import Dependency, Phase, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import count_pods
from argosy.workload.pods import PodCreation
from argosy.workload.record import Record
from tests.support.workloads import NOW, later, pod, pods, role, role_record, workload

JOB = workload(
    role("worker", 2), replace(role("launcher", 1), depends_on=(Dependency("worker", Phase.RUNNING),))
)
STARTING = {
    "worker": role_record(phase=Phase.STARTING, size=2),
    "launcher": role_record(phase=Phase.STARTING, size=1),
}


class Case(Struct):
    want: str
    pods: tuple[ObservedPod, ...] = ()
    outcomes: tuple[ActionResult, ...] = ()
    gate: Admission = Admission()
    missing: PodCreation = PodCreation()
    phase: Phase = Phase.STARTING
    below: bool = False
    message: str = ""
    unconfirmed: dict[str, str] = {}


HELD = pod(0, "Pending", role="launcher", waits_for_dependency=True)

CASES = {
    "pods pending: PodsStarting": Case("PodsStarting", pods("PP")),
    "pod without a node: Unschedulable": Case(
        "Unschedulable", (pod(0, "Pending", waiting_reason="Unschedulable"),)
    ),
    "pod without its image: the reason of the pod": Case(
        "ImagePullBackOff", (pod(0, "Pending", waiting_reason="ImagePullBackOff"),)
    ),
    "all pending pods wait for a role: WaitingForRole": Case(
        "WaitingForRole", (*pods("RR"), HELD), message="launcher is waiting for worker to be Running"
    ),
    "some pods wait for a role, others are starting: PodsStarting": Case("PodsStarting", (*pods("RP"), HELD)),
    "old pods exist: PodsTerminating": Case(
        "PodsTerminating",
        missing=PodCreation(blocked_by=("b", "a")),
        message="waiting for a and b to terminate",
    ),
    "backoff: BackOff": Case(
        "BackOff",
        missing=PodCreation(retry_at=later(65)),
        message="backing off until 12:01:05 UTC",
    ),
    "state of a node cannot be confirmed, all pods running: NodeUnconfirmed": Case(
        "NodeUnconfirmed",
        pods("RR"),
        phase=Phase.RUNNING,
        unconfirmed={"node-2": "nodes is forbidden", "node-1": ""},
        message="cannot confirm the state of node-2 (nodes is forbidden); the pods there are kept",
    ),
    "state of a node just requested: no reason": Case(
        "", pods("RR"), phase=Phase.RUNNING, unconfirmed={"node-1": ""}
    ),
    "gang not admitted: the reason of the gang": Case(
        "Queued", gate=Admission(allowed=False, reason="Queued", message="in line"), message="in line"
    ),
    "quota exceeded: PodForbidden": Case(
        "PodForbidden",
        outcomes=(ActionResult("Pod", "p", ActionStatus.FORBIDDEN, "exceeded quota"),),
        message="p: exceeded quota",
    ),
    "pod group of another owner: PodGroupNameConflict": Case(
        "PodGroupNameConflict",
        outcomes=(
            ActionResult("PodGroup.scheduling.volcano.sh", "g", ActionStatus.NAME_CONFLICT, "not ours"),
        ),
        message="g: not ours",
    ),
    "several failed actions: the most serious": Case(
        "ServiceInvalid",
        outcomes=(
            ActionResult("Pod", "p", ActionStatus.FORBIDDEN, "no"),
            ActionResult("Service", "s", ActionStatus.INVALID, "bad"),
        ),
        message="s: bad",
    ),
    "rejected specs and other failures: InvalidSpec with each message once": Case(
        "InvalidSpec",
        outcomes=(
            ActionResult("Service", "s", ActionStatus.INVALID, "bad"),
            ActionResult("Pod", "p", ActionStatus.SPEC_REJECTED, "spec.a: no"),
            ActionResult("Pod", "q", ActionStatus.SPEC_REJECTED, "spec.a: no"),
            ActionResult("Pod", "r", ActionStatus.SPEC_REJECTED, "spec.b: no"),
        ),
        message="spec.a: no; spec.b: no",
    ),
    "elastic role below its minimum: BelowMinReplicas": Case(
        "BelowMinReplicas",
        phase=Phase.RESTARTING,
        below=True,
        message="waiting for worker: at least 2 pods must be running",
    ),
    "running job: no reason": Case("", pods("RR"), phase=Phase.RUNNING),
}


def record_of(case: Case) -> Record:
    record = Record(phase=case.phase, phase_since=NOW, roles=STARTING)
    if case.below:
        record = record.with_role("worker", replace(STARTING["worker"], below_min_since=NOW))
    return record


def test_a_pod_whose_dependency_is_met_counts_as_starting() -> None:
    """Else a chain of roles would tell of a wait or not, as it happens."""
    chain = workload(
        role("scheduler", 1),
        replace(role("worker", 1), depends_on=(Dependency("scheduler"),)),
        replace(role("launcher", 1), depends_on=(Dependency("worker"),)),
    )
    record = Record(
        phase=Phase.STARTING, phase_since=NOW, roles={"scheduler": role_record(phase=Phase.RUNNING, size=1)}
    )
    released = Observed(pods=(*pods("R", "scheduler"), pod(0, "Pending", waits_for_dependency=True), HELD))
    after = wait_reasons.with_wait_reason(chain, record, released, Admission(), PodCreation(), NOW)
    assert after.waiting
    assert after.waiting.reason == "PodsStarting"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_waiting_job_has_a_reason(case: Case) -> None:
    observed = Observed(pods=case.pods, failed_actions=case.outcomes, nodes_unconfirmed=case.unconfirmed)
    after = wait_reasons.with_wait_reason(JOB, record_of(case), observed, case.gate, case.missing, NOW)
    waiting = after.waiting
    assert (waiting.reason if waiting else "", waiting.message if waiting else "") == (
        case.want,
        case.message,
    )


class Progress(Struct):
    job: Workload
    pods: tuple[ObservedPod, ...]
    want: str


PROGRESS = {
    "some pods running: their number": Progress(
        JOB, pods("RP"), "1 of 2 workers running; 0 of 1 launcher running"
    ),
    "all pods running: nothing": Progress(JOB, (*pods("RR"), *pods("R", "launcher")), ""),
    "pod cannot start: its reason": Progress(
        JOB,
        (pod(0), pod(1, "Pending", waiting_reason="ImagePullBackOff"), *pods("R", "launcher")),
        "1 of 2 workers running; worker-1: ImagePullBackOff",
    ),
}


@pytest.mark.parametrize("case", PROGRESS.values(), ids=PROGRESS.keys())
def test_progress_names_running_pods_and_what_prevents_the_others(case: Progress) -> None:
    record = Record(phase=Phase.STARTING, roles=STARTING)
    observed = Observed(pods=case.pods)
    counts = {name: count_pods(case.job, role, record, observed) for name, role in case.job.roles.items()}
    assert wait_reasons.progress(case.job, record, observed, counts) == case.want


def test_an_unreachable_node_is_reported_before_what_happened() -> None:
    record = Record(phase=Phase.RESTARTING, phase_since=NOW, message="replacing it", roles=STARTING)
    stuck = Observed(pods=(pod(0, node="a", terminating=True),), nodes_down=frozenset({"a"}))
    missing = PodCreation(blocked_by=("job-worker-0",))
    after = wait_reasons.with_wait_reason(JOB, record, stuck, Admission(), missing, NOW)
    assert wait_reasons.status_message(JOB, after, stuck, {}).startswith(
        "waiting for job-worker-0 to terminate on"
    )
    gone = Observed(pods=stuck.pods, nodes_down=stuck.nodes_down, nodes_released=stuck.nodes_down)
    after = wait_reasons.with_wait_reason(JOB, record, gone, Admission(), missing, NOW)
    assert after.waiting
    assert after.waiting.reason == "PodsTerminating"
