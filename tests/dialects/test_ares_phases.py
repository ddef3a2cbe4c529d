"""Acceptance cases 1 to 23 of the specification: phases of roles from pods, and of jobs from roles."""

from collections.abc import Callable, Mapping

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.dialects.base import StatusInput
from argosy.kinds.aresjob import AresJob
from argosy.workload import phases
from argosy.workload.decide import decide
from argosy.workload.model import Phase
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from tests.support.aresjobs import API, DIALECT, CaseTable, job, messages, simulate, workload_of
from tests.support.workloads import NOW, later, pod, pods, role_record

CASES = CaseTable()

P, S, R, OK, BAD = Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED


class RoleCase(Struct):
    pods: str
    last: Phase
    want: Phase
    replicas: int = 3
    restart: str = "Never"
    failed: str = "AnyPod"
    succeeded: str = "AllPods"
    gone: tuple[int, ...] = ()
    want_reason: str = ""
    want_message: str = ""


ROLES = {
    "1. any/all, R3, last Pending, F1 -> Failed": RoleCase("F", P, BAD, want_reason="PodFailed"),
    "2. any/all, R3, last Pending, S3 -> Succeeded": RoleCase("SSS", P, OK),
    "3. any/all, R3, last Pending, A3 -> Running": RoleCase("RRR", P, R),
    "4. any/all, R3, last Pending, A1 -> Starting": RoleCase("R", P, S),
    "5. any/all, R3, last Running, A2 S1 -> Running": RoleCase("RRS", R, R),
    "6. any/all, Never, R3, last Running, A1 S1, one gone -> Failed, PodMissing naming the index": RoleCase(
        "RS", R, BAD, gone=(2,), want_reason="PodMissing", want_message="total 1 pods were missing: 2"
    ),
    "7. any/all, restartPolicy OnFailure, R3, last Failed, A1 S1 -> Failed": RoleCase(
        "RS", BAD, BAD, restart="OnFailure"
    ),
    "8. failed AllPods, R3, last Running, F2 A1 -> Running": RoleCase("FFR", R, R, failed="AllPods"),
    "8. … then F3 -> Failed": RoleCase("FFF", R, BAD, failed="AllPods", want_reason="PodFailed"),
    "9. succeeded AnyPod, R3, S1 A2 -> Succeeded": RoleCase("SRR", R, OK, succeeded="AnyPod"),
    "10. OnFailure, failed unset, R2, last Running, A1 P1 -> Running": RoleCase(
        "RP", R, R, replicas=2, restart="OnFailure", failed=""
    ),
    "11. any/all, Never, R2, last Running, A1 U1 -> Running": RoleCase("RU", R, R, replicas=2),
    "11. … A1 P1 -> Running": RoleCase("RP", R, R, replicas=2),
    "a role whose first pod has succeeded before its last runs is not Running": RoleCase("SRR", S, S),
    "all ended, and neither policy says what that means -> Failed, MixedOutcome": RoleCase(
        "SFS", R, BAD, failed="AllPods", want_reason="MixedOutcome"
    ),
    "a terminating pod of a Running role that is never restarted -> Failed, PodMissing": RoleCase(
        "RRT",
        R,
        BAD,
        want_reason="PodMissing",
        want_message="total 1 pods were terminating: 2; job-worker-2()",
    ),
}


@pytest.mark.parametrize("case", ROLES.values(), ids=ROLES.keys())
def test_role(case: RoleCase) -> None:
    policy = {"failed": case.failed, "succeeded": case.succeeded}
    role = {"replicas": case.replicas, "restartPolicy": case.restart, "rolePhasePolicy": policy}
    obj = job("mpi", roles={"worker": role, "launcher": {}})  # no default for a policy that is left out
    workload = workload_of(obj)
    last = role_record(
        phase=case.last,
        size=case.replicas,
        created=case.replicas,
        lost_indexes=dict.fromkeys(case.gone, 1),
    )
    observed = pods(case.pods)
    last = replace(last, succeeded_indexes={pod.index: 1 for pod in observed if pod.phase == "Succeeded"})
    state = Observed(pods=observed)
    record = phases.with_role_phases(workload, Record(phase_since=NOW, roles={"worker": last}), state, NOW)
    assert record.role("worker").phase is case.want
    status = DIALECT.to_status(obj, StatusInput(workload, record, state)).role_statuses["worker"]
    if case.want is BAD and case.last is not BAD:
        assert status.reason == case.want_reason
        assert case.want_message in status.message
    assert status.phase == case.want.value


def two(last: str = "Running", **role: object) -> AresJob:
    return job(roles={"worker": {"replicas": 2, **role}})


@CASES("12. Never, R2, role Starting, one pod deleted -> recreated with the same name, role stays Starting")
def a_pod_deleted_while_the_role_starts_is_made_again_under_its_name() -> None:
    starting = simulate(two()).start().reconcile(*pods("PP"))
    lost = starting.reconcile(*pods("P"))
    assert lost.created == ["worker-1"]
    assert API.pod_name(workload_of(lost.obj), "worker", 1, 1, 0) == "job-worker-1"
    assert lost.role().phase == "Starting"


class NodeCase(Struct):
    down: bool
    conditions_unknown: bool
    want: str
    want_reason: str = ""


NODES = {
    "13. node of pod 1 gets a condition Unknown -> Failed, PossibleNodeDown": NodeCase(
        True, True, "Failed", "PossibleNodeDown"
    ),
    "13. … flag false -> Running": NodeCase(False, True, "Running"),
    "13. … only Ready=False -> Running": NodeCase(True, False, "Running"),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES.keys())
def test_13_node_down(case: NodeCase) -> None:
    obj = two(rolePhasePolicy={"nodeDownAsFailed": case.down})
    observed_pods = (pod(0, node="a"), pod(1, node="b"))
    running = simulate(obj).start().reconcile(*observed_pods)
    doubt = frozenset({"b"}) if case.conditions_unknown else frozenset[str]()
    after = running.reconcile_observed(Observed(pods=observed_pods, nodes_partly_unknown=doubt))
    assert (after.role().phase, after.role().reason) == (case.want, case.want_reason)


RESTARTS = {
    "OnFailure, no policy: counts as failed, is neither deleted nor replaced": ("OnFailure", "Running"),
    "Always: likewise": ("Always", "Running"),
    "ExitCode, failed AnyPod: the role has failed, and the pod stays": ("ExitCode", "Failed"),
}


@pytest.mark.parametrize(("restart", "want"), RESTARTS.values(), ids=RESTARTS.keys())
def test_healthy_pod_on_a_node_with_an_unknown_condition(restart: str, want: str) -> None:
    """3.2 counts it as failed; 3.4 replaces pods of phase Failed only."""
    policy = {"nodeDownAsFailed": True, **({"failed": "AnyPod"} if want == "Failed" else {})}
    observed_pods = (pod(0, node="a"),)
    running = simulate(job(roles={"worker": {"restartPolicy": restart, "rolePhasePolicy": policy}}))
    running = running.start().reconcile(*observed_pods)
    after = running.reconcile_observed(Observed(pods=observed_pods, nodes_partly_unknown=frozenset({"a"})))
    assert (after.role().phase, after.role().failed, after.role().restarts) == (want, 1, 0)
    assert (after.created, after.deleted) == ([], [])
    ready_unknown = running.reconcile_observed(
        Observed(pods=observed_pods, nodes_down=frozenset({"a"}), nodes_partly_unknown=frozenset({"a"}))
    )
    assert (ready_unknown.created, ready_unknown.deleted) == ([], [])


EXITS = {
    "14. ExitCode, container exit 137 -> pod deleted and recreated, role not Failed": (137, True),
    "14. … 130": (130, True),
    "14. … 138": (138, True),
    "14. … 143": (143, True),
    "14. … exit 1 -> pod kept, role Failed": (1, False),
    "14. … exit 139 -> pod kept, role Failed": (139, False),
    "ExitCode, no terminated container (eviction) -> pod kept, role Failed": (None, False),
}


@pytest.mark.parametrize(("code", "replaced"), EXITS.values(), ids=EXITS.keys())
def test_14_exit_codes(code: int | None, replaced: bool) -> None:
    running = simulate(two(restartPolicy="ExitCode")).start().reconcile(*pods("RR"))
    failed = replace(pod(1, "Failed", exit_code=code, disrupted=code is None), first_exit_code=code)
    after = running.reconcile(pod(0), failed)
    assert (after.role().phase == "Failed") is not replaced
    if replaced:
        assert after.deleted == ["job-worker-1"]
        assert after.role().restarts == 1
        assert after.reconcile(pod(0)).created == ["worker-1"]
    else:
        assert not after.deleted
        assert after.phase == "Failed"


@CASES("15. Never, R2, Running, spec scaled to 3 -> pod of index 2 appears, role and job stay Running")
def a_running_role_that_is_never_restarted_can_grow() -> None:
    running = simulate(two()).start().reconcile(*pods("RR"))
    grown = running.with_spec(roleSpecs={"worker": {"replicas": 3}}).reconcile(*pods("RR"))
    assert grown.created == ["worker-2"]
    assert (grown.role().phase, grown.phase) == ("Running", "Running")
    assert grown.reconcile(*pods("RRP")).phase == "Running"
    assert grown.reconcile(*pods("RRR")).role().replicas == 3


class JobCase(Struct):
    roles: Mapping[str, Phase]
    last: Phase
    want: Phase
    failed: list[list[str]] = field(default_factory=lambda: [["ps"], ["hub"], ["train"]])
    succeeded: list[list[str]] = field(default_factory=lambda: [["train"]])


JOBS = {
    "16. ps Running, hub Failed, train Succeeded -> Failed": JobCase(
        {"ps": R, "hub": BAD, "train": OK}, R, BAD
    ),
    "17. ps and hub Running, train Succeeded -> Succeeded": JobCase({"ps": R, "hub": R, "train": OK}, R, OK),
    "18. all Running, last Pending -> Running": JobCase({"ps": R, "hub": R, "train": R}, P, R),
    "19. train Pending, others Running, last Pending -> Starting": JobCase(
        {"ps": R, "hub": R, "train": S}, P, S
    ),
    "20. plus role etcd (in no list) Failed, others Running, last Running -> Running": JobCase(
        {"ps": R, "hub": R, "train": R, "etcd": BAD}, R, R
    ),
    "21. succeeded [[chief,worker],[launcher]]: launcher Succeeded alone -> Succeeded": JobCase(
        {"chief": R, "worker": R, "launcher": OK}, R, OK, [], [["chief", "worker"], ["launcher"]]
    ),
    "every role has ended, one of them badly, and no list says what that means -> Failed": JobCase(
        {"ps": OK, "hub": BAD, "train": OK}, R, BAD, [], []
    ),
    "every role has succeeded and no list says what that means -> Succeeded": JobCase(
        {"ps": OK, "hub": OK, "train": OK}, R, OK, [], []
    ),
    "one role has succeeded before the others run -> not Running": JobCase(
        {"ps": OK, "hub": R, "train": R}, S, S
    ),
}
_LETTERS = {P: ".", S: "P", R: "R", OK: "S", BAD: "F"}


@pytest.mark.parametrize("case", JOBS.values(), ids=JOBS.keys())
def test_job(case: JobCase) -> None:
    policy = {"failed": case.failed, "succeeded": case.succeeded}
    obj = job(roles={name: {} for name in case.roles}, jobPhasePolicy=policy)
    workload = workload_of(obj)
    before = Record(
        phase_since=NOW,
        phase=case.last,
        started_at=NOW,
        attempt_started_at=NOW,
        first_running_at=NOW if case.last is R else None,
        roles={
            name: role_record(S if phase is S else R, size=1, phase_since=NOW)
            for name, phase in case.roles.items()
        },
    )
    observed = Observed(
        pods=tuple(pod for name, phase in case.roles.items() for pod in pods(_LETTERS[phase], name))
    )
    record = decide(workload, before, observed, later(1)).record
    assert record.phase is case.want
    status = DIALECT.to_status(obj, StatusInput(workload, record, observed))
    assert status.phase == case.want.value
    assert (status.running_time is not None) == (case.want is R or case.last is R)


@CASES("18. … runningTime set, one event Pending -> Running")
def one_event_tells_the_true_old_phase() -> None:
    first = simulate(job()).reconcile()
    assert (first.phase, first.condition("Created")[:2]) == ("Pending", ("True", "Pending"))
    running = first.reconcile(*pods("R"))
    assert messages(running.events, "JobPhaseTransition") == ["Pending -> Running"]
    assert running.status.running_time == later(running.at)
    assert not running.reconcile(*pods("R")).events


@CASES(
    "22. pytorch: master Succeeded while worker is Starting -> Starting, not Running; worker Succeeded "
    "-> Succeeded"
)
def pytorch_whose_master_succeeds_early() -> None:
    begun = simulate(job("pytorch", roles={"master": {}, "worker": {}})).start()
    early = begun.reconcile(*pods("S", "master"), *pods("P"))
    assert early.phase == "Starting"
    still = early.reconcile(*pods("S", "master"), *pods("R"))
    assert (still.phase, still.status.running_time) == ("Starting", None)
    assert still.reconcile(*pods("S", "master"), *pods("S")).phase == "Succeeded"


CUSTOM: dict[str, tuple[tuple[ObservedPod, ...], str]] = {
    "23. one Succeeded, other Running -> unchanged": ((*pods("S", "a"), *pods("R", "b")), "Running"),
    "23. … both -> Succeeded": ((*pods("S", "a"), *pods("S", "b")), "Succeeded"),
    "23. … any Failed -> Failed": ((*pods("R", "a"), *pods("F", "b")), "Failed"),
}


@pytest.mark.parametrize(("observed_pods", "want"), CUSTOM.values(), ids=CUSTOM.keys())
def test_23_custom_defaults_two_roles(observed_pods: tuple[ObservedPod, ...], want: str) -> None:
    running = simulate(job(roles={"a": {}, "b": {}})).start().reconcile(*pods("R", "a"), *pods("R", "b"))
    assert running.phase == "Running"
    assert running.reconcile(*observed_pods).phase == want


def test_running_pods_count_as_succeeded_once_the_job_has() -> None:
    running = simulate(job("mpi", roles={"launcher": {}, "worker": {}})).start()
    done = running.reconcile(*pods("S", "launcher"), *pods("R"))
    assert done.phase == "Succeeded"
    assert (done.role().active, done.role().succeeded) == (0, 1)
    assert done.status.replica_statuses["worker"].succeeded == 1


@pytest.mark.parametrize("play", CASES.table.values(), ids=CASES.table.keys())
def test_case(play: Callable[[], None]) -> None:
    play()


def test_message_about_thousands_of_missing_pods_is_truncated() -> None:
    """Otherwise the status would become too large."""
    running = simulate(job(roles={"worker": {"replicas": 3000}})).start().reconcile(*pods("R" * 3000))
    lost = running.reconcile().reconcile_observed(
        Observed(confirmed_absent=frozenset(("worker", index) for index in range(3000)))
    )
    assert lost.role().reason == "PodMissing"
    assert lost.role().message.startswith("total 3000 pods were missing: 0,1,2,")
    assert len(lost.role().message) < 1100
