import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import phases
from argosy.workload.model import Elastic, Phase, Quantifier, RestartPolicy, RolePolicy, Rules
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from tests.support.workloads import NOW, USUAL, observation, pod, pods, role, role_record, workload

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
    lost: tuple[int, ...] = ()
    want_reason: str = ""


ROLES = {
    "AnyPod with one failed pod: Failed": Case("F", Phase.FAILED, want_reason="PodFailed"),
    "AnyPod for both, one failed and one succeeded: Failed": Case(
        "SFR", Phase.FAILED, policy=ANY_ANY, want_reason="PodFailed"
    ),
    "all pods succeeded: Succeeded": Case("SSS", Phase.SUCCEEDED),
    "all pods running: Running": Case("RRR", R),
    "one of three pods running: Starting": Case("R", S),
    "one pod succeeded, others running: stays Running": Case("RRS", R, last=R),
    "two pods succeeded, the last running: Running": Case("SSR", R, last=S),
    "pod deleted, without restarts: Failed": Case(
        "RS.", Phase.FAILED, last=R, lost=(2,), want_reason="PodMissing"
    ),
    "pod terminating, without restarts: Failed": Case("RRT", Phase.FAILED, last=R, want_reason="PodMissing"),
    "pod not observed, and not confirmed to be deleted: stays Running": Case("RR.", R, last=R),
    "pod of an elastic role deleted, and its minimum left: stays Running": Case(
        "RR.", R, last=R, lost=(2,), elastic=Elastic(2, 4)
    ),
    "failed role with some pods running: stays Failed": Case(
        "RS.", Phase.FAILED, last=Phase.FAILED, restart=RestartPolicy.ON_FAILURE
    ),
    "failed role with all pods running again: Running": Case(
        "RRR", R, last=Phase.FAILED, restart=RestartPolicy.ON_FAILURE
    ),
    "AllPods with two of three pods failed: stays Running": Case("FFR", R, last=R, policy=ALL_FAILED),
    "AllPods with all pods failed: Failed": Case(
        "FFF", Phase.FAILED, policy=ALL_FAILED, want_reason="PodFailed"
    ),
    "AnyPod with one pod succeeded: Succeeded": Case("SRR", Phase.SUCCEEDED, policy=ANY_ANY),
    "no policy, all pods ended and one failed: Failed": Case(
        "SFS", Phase.FAILED, policy=UNSET, want_reason="MixedOutcome"
    ),
    "no policy, all pods succeeded: Succeeded": Case("SSS", Phase.SUCCEEDED, policy=UNSET),
    "no policy, one pod failed and others running: stays Running": Case("FRR", R, last=R, policy=UNSET),
    "running role with a pending pod: stays Running": Case(
        "RP", R, last=R, replicas=2, restart=RestartPolicy.ON_FAILURE
    ),
    "running role with an unknown pod: stays Running": Case("RU", R, last=R, replicas=2),
    "elastic role with its minimum running: Running": Case("RRPP", R, replicas=4, elastic=Elastic(2, 8)),
    "elastic role with fewer than its minimum running: Starting": Case(
        "RPPP", S, replicas=4, elastic=Elastic(2, 8)
    ),
    "no pods: Pending": Case("", P),
    "first pod exists: Starting": Case("P", S),
    "starting role without pods: stays Starting": Case("", S, last=S),
}


@pytest.mark.parametrize("case", ROLES.values(), ids=ROLES.keys())
def test_the_phase_of_a_role_follows_from_its_pods(case: Case) -> None:
    worker = role("worker", case.replicas, case.restart, case.policy, case.elastic)
    job = workload(worker)
    last = role_record(
        phase=case.last,
        size=case.replicas,
        created=len(case.pods),
        lost_indexes=dict.fromkeys(case.lost, 1),
    )
    observed = pods(case.pods)
    last = replace(last, succeeded_indexes={p.index: 1 for p in observed if p.phase == "Succeeded"})
    record = Record(roles={"worker": last})
    result = phases.role_phase(
        job, worker, last, phases.count_pods(job, worker, record, observation(*observed))
    )
    assert (result.phase, result.reason) == (case.want, case.want_reason)


DOWN = RolePolicy(Quantifier.ANY, Quantifier.ALL, node_down_as_failed=True)


class NodeCase(Struct):
    policy: RolePolicy
    down: set[str]
    want: Phase


NODES = {
    "pod on a node that is down, which counts as failed: Failed": NodeCase(DOWN, {"a"}, Phase.FAILED),
    "pod on a node that is down, which does not count as failed: stays Running": NodeCase(USUAL, {"a"}, R),
    "another node is down: stays Running": NodeCase(DOWN, {"b"}, R),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES.keys())
def test_pods_on_nodes_that_are_down_count_as_failed_if_configured(case: NodeCase) -> None:
    worker = role("worker", 1, policy=case.policy)
    job = workload(worker)
    last = role_record(phase=R, size=1, created=1)
    observed = Observed(pods=(pod(node="a"),), nodes_down=frozenset(case.down))
    record = Record(roles={"worker": last})
    assert (
        phases.role_phase(job, worker, last, phases.count_pods(job, worker, record, observed)).phase
        is case.want
    )


class JobCase(Struct):
    roles: dict[str, Phase]
    want: Phase | None
    failed: tuple[tuple[str, ...], ...] = (("ps",), ("hub",), ("train",))
    succeeded: tuple[tuple[str, ...], ...] = (("train",),)


F, D = Phase.FAILED, Phase.SUCCEEDED

JOBS = {
    "one role failed, another succeeded: Failed": JobCase({"ps": R, "hub": F, "train": D}, F),
    "decisive role succeeded: Succeeded": JobCase({"ps": R, "hub": R, "train": D}, D),
    "all roles running: continues": JobCase({"ps": R, "hub": R, "train": R}, None),
    "role in no list failed: continues": JobCase({"ps": R, "hub": R, "train": R, "etcd": F}, None),
    "one of two lists succeeded: Succeeded": JobCase(
        {"chief": R, "worker": R, "launcher": D}, D, failed=(), succeeded=(("chief", "worker"), ("launcher",))
    ),
    "only a part of a list succeeded: continues": JobCase(
        {"chief": D, "worker": R}, None, failed=(), succeeded=(("chief", "worker"),)
    ),
    "no lists, all roles ended and one failed: Failed": JobCase({"a": D, "b": F}, F, failed=(), succeeded=()),
    "no lists, all roles succeeded: Succeeded": JobCase({"a": D, "b": D}, D, failed=(), succeeded=()),
}


@pytest.mark.parametrize("case", JOBS.values(), ids=JOBS.keys())
def test_roles_decide_when_the_job_finishes(case: JobCase) -> None:
    job = workload(
        *(role(name, 1) for name in case.roles),
        rules=Rules(succeeded_when=case.succeeded, failed_when=case.failed),
    )
    record = Record(roles={name: role_record(phase=phase, size=1) for name, phase in case.roles.items()})
    result = phases.terminal_result(job, record)
    assert (result.phase if result else None) is case.want


class PhaseCase(Struct):
    pods: tuple[ObservedPod, ...]
    last: Phase
    want: Phase
    restart: RestartPolicy = RestartPolicy.ON_FAILURE


ACTIVE = {
    "starting job with all pods running: Running": PhaseCase(pods("RR"), S, R),
    "starting job with a pending pod: Starting": PhaseCase(pods("RP"), S, S),
    "running job that lost a pod: Restarting": PhaseCase(pods("R."), R, Phase.RESTARTING),
    "restarting job with all pods running: Running": PhaseCase(pods("RR"), Phase.RESTARTING, R),
    "restarting job with a pending pod: Restarting": PhaseCase(
        pods("RP"), Phase.RESTARTING, Phase.RESTARTING
    ),
    "running job without restarts and with an unknown pod: Running": PhaseCase(
        pods("RU"), R, R, RestartPolicy.NEVER
    ),
}


@pytest.mark.parametrize("case", ACTIVE.values(), ids=ACTIVE.keys())
def test_the_phase_of_an_active_job_follows_from_its_pods(case: PhaseCase) -> None:
    job = workload(role("worker", 2, case.restart))
    ran = case.last is not S
    last = role_record(phase=R if ran else S, size=2, created=2)
    record = Record(phase=case.last, started_at=NOW, roles={"worker": last})
    observed = observation(*case.pods)
    updated = phases.with_role_phases(job, record, observed, NOW)
    assert phases.job_phase(job, updated, observed) is case.want
