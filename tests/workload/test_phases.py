import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import phases
from argosy.workload.model import Elastic, Phase, Quantifier, RestartPolicy, RolePolicy, Rules
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, USUAL, pod, pods, role, seen, workload

P, S, R = Phase.PENDING, Phase.STARTING, Phase.RUNNING
ALL_FAILED = RolePolicy(Quantifier.ALL, Quantifier.ALL)
ANY_ANY = RolePolicy(Quantifier.ANY, Quantifier.ANY)
UNSET = RolePolicy()


class Case(Struct):
    pods: str
    want: Phase
    last: Phase = P
    replicas: int = 3
    policy: RolePolicy = USUAL
    restart: RestartPolicy = RestartPolicy.NEVER
    elastic: Elastic | None = None
    gone: tuple[int, ...] = ()
    want_reason: str = ""


ROLES = {
    "one failed pod fails a role that says AnyPod": Case("F", Phase.FAILED, want_reason="PodFailed"),
    "failure is looked at before success": Case("SFR", Phase.FAILED, policy=ANY_ANY, want_reason="PodFailed"),
    "all succeeded": Case("SSS", Phase.SUCCEEDED),
    "all running": Case("RRR", R),
    "one of three running is starting": Case("R", S),
    "a pod that succeeded while the others run does not end Running": Case("RRS", R, last=R),
    "two succeed and the last still runs": Case("SSR", R, last=S),
    "a pod gone for good from a running role that never restarts fails it": Case(
        "RS.", Phase.FAILED, last=R, gone=(2,), want_reason="PodMissing"
    ),
    "a pod being deleted by somebody is as good as gone": Case(
        "RRT", Phase.FAILED, last=R, want_reason="PodMissing"
    ),
    "a pod that is merely not seen does not fail the role": Case("RR.", R, last=R),
    "a pod gone for good from an elastic role that has enough left is borne": Case(
        "RR.", R, last=R, gone=(2,), elastic=Elastic(2, 4)
    ),
    "a failed role stays failed until all run again": Case(
        "RS.", Phase.FAILED, last=Phase.FAILED, restart=RestartPolicy.ON_FAILURE
    ),
    "a failed role that runs again is Running": Case(
        "RRR", R, last=Phase.FAILED, restart=RestartPolicy.ON_FAILURE
    ),
    "AllPods bears two failures of three": Case("FFR", R, last=R, policy=ALL_FAILED),
    "AllPods fails with the last": Case("FFF", Phase.FAILED, policy=ALL_FAILED, want_reason="PodFailed"),
    "AnyPod succeeds with the first": Case("SRR", Phase.SUCCEEDED, policy=ANY_ANY),
    "without a policy the last pod decides, badly": Case(
        "SFS", Phase.FAILED, policy=UNSET, want_reason="MixedOutcome"
    ),
    "without a policy the last pod decides, well": Case("SSS", Phase.SUCCEEDED, policy=UNSET),
    "without a policy a failure alone decides nothing": Case("FRR", R, last=R, policy=UNSET),
    "a pending pod in a running role": Case("RP", R, last=R, replicas=2, restart=RestartPolicy.ON_FAILURE),
    "an unknown pod in a running role": Case("RU", R, last=R, replicas=2),
    "an elastic role runs with its least number": Case("RRPP", R, replicas=4, elastic=Elastic(2, 8)),
    "an elastic role below its least number is starting": Case("RPPP", S, replicas=4, elastic=Elastic(2, 8)),
    "nothing there yet": Case("", P),
    "the first pod is there": Case("P", S),
    "Starting never goes back to Pending": Case("", S, last=S),
}


@pytest.mark.parametrize("case", ROLES.values(), ids=ROLES.keys())
def test_role(case: Case) -> None:
    one = role("worker", case.replicas, case.restart, case.policy, case.elastic)
    job = workload(one)
    last = RoleRecord(
        phase=case.last,
        size=case.replicas,
        created_below=len(case.pods),
        lost_indexes=dict.fromkeys(case.gone, 1),
    )
    observed = pods(case.pods)
    last = replace(last, succeeded_indexes={p.index: 1 for p in observed if p.phase == "Succeeded"})
    record = Record(roles={"worker": last})
    verdict = phases.role_phase(job, one, last, phases.count_pods(job, one, record, seen(*observed)))
    assert (verdict.phase, verdict.reason) == (case.want, case.want_reason)


DOWN = RolePolicy(Quantifier.ANY, Quantifier.ALL, node_down_as_failed=True)


class NodeCase(Struct):
    policy: RolePolicy
    down: set[str]
    want: Phase


NODES = {
    "a pod on a silent node counts as failed where that is asked for": NodeCase(DOWN, {"a"}, Phase.FAILED),
    "a silent node is borne where that is not asked for": NodeCase(USUAL, {"a"}, R),
    "another node is none of its business": NodeCase(DOWN, {"b"}, R),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES.keys())
def test_node_down(case: NodeCase) -> None:
    one = role("worker", 1, policy=case.policy)
    job = workload(one)
    last = RoleRecord(phase=R, size=1, created_below=1)
    observed = Observed(pods=(pod(node="a"),), nodes_down=frozenset(case.down))
    record = Record(roles={"worker": last})
    assert phases.role_phase(job, one, last, phases.count_pods(job, one, record, observed)).phase is case.want


class JobCase(Struct):
    roles: dict[str, Phase]
    want: Phase | None
    failed: tuple[tuple[str, ...], ...] = (("ps",), ("hub",), ("train",))
    succeeded: tuple[tuple[str, ...], ...] = (("train",),)


F, D = Phase.FAILED, Phase.SUCCEEDED

JOBS = {
    "a failed role fails the job though another succeeded": JobCase({"ps": R, "hub": F, "train": D}, F),
    "the job succeeds with the role that matters": JobCase({"ps": R, "hub": R, "train": D}, D),
    "nothing has ended": JobCase({"ps": R, "hub": R, "train": R}, None),
    "a role in no list may fail": JobCase({"ps": R, "hub": R, "train": R, "etcd": F}, None),
    "one of two alternatives is enough": JobCase(
        {"chief": R, "worker": R, "launcher": D}, D, failed=(), succeeded=(("chief", "worker"), ("launcher",))
    ),
    "an alternative needs all its roles": JobCase(
        {"chief": D, "worker": R}, None, failed=(), succeeded=(("chief", "worker"),)
    ),
    "when every role has ended the job has, badly if one did": JobCase(
        {"a": D, "b": F}, F, failed=(), succeeded=()
    ),
    "when every role has succeeded the job has": JobCase({"a": D, "b": D}, D, failed=(), succeeded=()),
}


@pytest.mark.parametrize("case", JOBS.values(), ids=JOBS.keys())
def test_job(case: JobCase) -> None:
    job = workload(
        *(role(name, 1) for name in case.roles),
        rules=Rules(succeeded_when=case.succeeded, failed_when=case.failed),
    )
    record = Record(roles={name: RoleRecord(phase=phase, size=1) for name, phase in case.roles.items()})
    ending = phases.terminal_result(job, record)
    assert (ending.phase if ending else None) is case.want


class PhaseCase(Struct):
    pods: tuple[ObservedPod, ...]
    last: Phase
    want: Phase
    restart: RestartPolicy = RestartPolicy.ON_FAILURE


GOING = {
    "all run": PhaseCase(pods("RR"), S, R),
    "one is still to come": PhaseCase(pods("RP"), S, S),
    "one was lost from a running job": PhaseCase(pods("R."), R, Phase.RESTARTING),
    "it is back": PhaseCase(pods("RR"), Phase.RESTARTING, R),
    "it is not back yet": PhaseCase(pods("RP"), Phase.RESTARTING, Phase.RESTARTING),
    "a job that replaces nothing is not Restarting": PhaseCase(pods("RU"), R, R, RestartPolicy.NEVER),
}


@pytest.mark.parametrize("case", GOING.values(), ids=GOING.keys())
def test_phase_of_a_job_that_goes_on(case: PhaseCase) -> None:
    job = workload(role("worker", 2, case.restart))
    ran = case.last is not S
    last = RoleRecord(phase=R if ran else S, size=2, created_below=2)
    record = Record(phase=case.last, started_at=NOW, roles={"worker": last})
    observed = seen(*case.pods)
    judged = phases.with_role_phases(job, record, observed, NOW)
    assert phases.job_phase(job, judged, observed) is case.want
