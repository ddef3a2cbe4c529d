"""Tests reconciles under random faults: invariants always hold, and jobs converge when faults end."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from argosy.kinds.checkpoint_spec import CheckpointLevel
from argosy.workload.announcements import NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy, ImageTarget
from argosy.workload.current_pods import is_current
from argosy.workload.dependencies import is_creation_held
from argosy.workload.model import (
    CleanupPolicy,
    Dependency,
    Elastic,
    Escalation,
    Gang,
    Limits,
    Phase,
    ReplacementBudget,
    ReplacementPolicy,
    ResizeMode,
    RestartPolicy,
    RestartScope,
    Rules,
    Workload,
)
from argosy.workload.observed import ObservedPod
from argosy.workload.record import MAX_RESTART_HISTORY, Record
from argosy.workload.record_encoding import decode
from argosy.workload.restarts.causes import CONTAINER, RestartCause
from tests.support.fake_cluster import NODES, FakeCluster, NodeState
from tests.support.workloads import USUAL, role, workload

REPLACEMENTS = (
    ReplacementPolicy(),
    ReplacementPolicy(deleted=False),
    ReplacementPolicy(next_index=True),
    ReplacementPolicy(scope=RestartScope.POD, next_index=True, budget=ReplacementBudget(2, backoff=1.0)),
)
ORDERED = CheckpointPolicy("file:///store/ns/job-uid", suspend_grace=20.0)
ON_SIGNAL = replace(ORDERED, saves_on_signal=True)
PROCESSES = replace(
    ORDERED, uri="", level=CheckpointLevel.PROCESS, images=ImageTarget("registry.example", "train")
)
RULES = Rules(succeeded_when=(("worker",),), failed_when=(("worker",), ("chief",)))
DISRUPTIONS = frozenset(
    {
        RestartCause.DELETED,
        RestartCause.DISRUPTED,
        RestartCause.EVICTED,
        RestartCause.NODE_LOST,
        RestartCause.PREEMPTED,
    }
)


class Life(RuleBasedStateMachine):
    """One job, and everything that can happen to it."""

    cluster: FakeCluster
    wiped = False
    in_place = 0

    def __init__(self) -> None:
        super().__init__()
        self.disturbed: set[tuple[str, int, str]] = set()
        """Role, index and uid of pods that ended, or about whose end something was known."""

    @initialize(
        scope=st.sampled_from(RestartScope),
        restart=st.sampled_from(RestartPolicy),
        resize=st.sampled_from(ResizeMode),
        gang=st.booleans(),
        elastic=st.booleans(),
        cleanup=st.sampled_from(CleanupPolicy),
        restarts=st.sampled_from([0, 2, None]),
        two_roles=st.booleans(),
        node_down_as_failed=st.booleans(),
        escalation=st.sampled_from([Escalation(), Escalation(1, 1, 1), Escalation(pod=0)]),
        replacement=st.sampled_from(REPLACEMENTS),
        held=st.booleans(),
        running=st.booleans(),
        checkpoint=st.sampled_from([None, ORDERED, ON_SIGNAL, PROCESSES]),
    )
    def begin(
        self,
        scope: RestartScope,
        restart: RestartPolicy,
        resize: ResizeMode,
        gang: bool,
        elastic: bool,
        cleanup: CleanupPolicy,
        restarts: int | None,
        two_roles: bool,
        node_down_as_failed: bool,
        escalation: Escalation,
        replacement: ReplacementPolicy,
        held: bool,
        running: bool,
        checkpoint: CheckpointPolicy | None,
    ) -> None:
        policy = replace(USUAL, node_down_as_failed=node_down_as_failed)
        workers = role("worker", 3, restart, policy, elastic=Elastic(2, 5) if elastic else None)
        workers = replace(workers, replacement=replacement)
        if checkpoint is PROCESSES:  # of one pod only; `scale` makes it a job whose program is asked
            workers, gang, two_roles = replace(workers, replicas=1, elastic=None), False, False
        waits = (Dependency("worker", holds_creation=True),) if held and not gang else ()
        chief = (replace(role("chief", 1, restart), depends_on=waits),) if two_roles else ()
        rules = replace(RULES, restart_scope=scope, resize=resize, services=("worker",))
        if not two_roles:
            rules = replace(rules, failed_when=(("worker",),))
        wanted = workload(
            workers,
            *chief,
            rules=rules,
            limits=Limits(restarts=restarts, escalation=escalation),
            gang=Gang(3) if gang else None,
            cleanup=cleanup,
        )
        self.cluster = FakeCluster(replace(wanted, checkpoint=checkpoint))
        if running:
            self.cluster.settle()

    # The operator.

    @rule()
    def reconcile(self) -> None:
        self.cluster.reconcile()

    @rule()
    def reconcile_with_current_caches(self) -> None:
        self.cluster.sync()
        self.cluster.reconcile()

    @rule(after=st.integers(0, 6), up_to_date=st.booleans())
    def crash(self, after: int, up_to_date: bool) -> None:
        if up_to_date:
            self.cluster.sync()
        self.cluster.reconcile(crash_after=after)

    @rule(age=st.integers(0, 4))
    def operator_restarts(self, age: int) -> None:
        self.cluster.restart(age)

    @rule(age=st.integers(1, 4))
    def operator_restarts_with_outdated_caches_and_reconciles(self, age: int) -> None:
        self.cluster.restart(age)
        self.cluster.reconcile()

    @rule(after=st.integers(0, 6), up_to_date=st.booleans())
    def leader_loses_the_lease_and_keeps_running(self, after: int, up_to_date: bool) -> None:
        """The next leader may lose it to the first again."""
        if up_to_date:
            self.cluster.sync()
        self.cluster.lose_lease(after)

    @rule()
    def leadership_changes_between_reconciles(self) -> None:
        self.cluster.change_leader()

    @rule(after=st.integers(1, 6), ends=st.booleans())
    def other_replica_leads_for_a_while_in_a_burst(self, after: int, ends: bool) -> None:
        cluster = self.cluster
        cluster.in_burst = True
        cluster.sync()
        cluster.lose_lease(after)
        self._work(2)
        for pod in cluster.live_pods("Running") if ends else ():
            cluster.update(replace(pod, phase="Succeeded", exit_code=0))
        self._work(4)
        cluster.in_burst = True
        cluster.change_leader()
        cluster.reconcile()

    def _work(self, passes: int) -> None:
        self.cluster.in_burst = False
        for _ in range(passes):
            self.cluster.sync()
            self.cluster.reconcile()
            self.cluster.tick()

    @rule()
    def second_operator_reconciles_by_mistake(self) -> None:
        self.cluster.switch_to_other_leader()
        self.cluster.reconcile()

    @rule()
    def burst_of_jobs_starts_or_ends(self) -> None:
        self.cluster.in_burst = not self.cluster.in_burst

    @rule()
    def caches_catch_up(self) -> None:
        self.cluster.sync()

    # The cluster.

    @rule()
    def kubelets_continue(self) -> None:
        self.cluster.tick()

    @precondition(lambda self: self.cluster.live_pods("Pending"))
    @rule(data=st.data())
    def pod_starts(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.cluster.live_pods("Pending")))
        self.cluster.update(replace(pod, phase="Running"))

    @precondition(lambda self: self.cluster.live_pods("Running"))
    @rule(data=st.data(), code=st.sampled_from([1, 137]))
    def pod_fails(self, data: st.DataObject, code: int) -> None:
        self.cluster.fail(data.draw(st.sampled_from(self.cluster.live_pods("Running"))), code)

    @precondition(lambda self: self.cluster.live_pods("Running"))
    @rule(data=st.data())
    def pod_succeeds(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.cluster.live_pods("Running")))
        self.cluster.update(replace(pod, phase="Succeeded", exit_code=0))

    @precondition(lambda self: self.cluster.live_pods("Running"))
    @rule(data=st.data())
    def container_restarts_in_place(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.cluster.live_pods("Running")))
        if self._restarts_in_place():
            count = pod.container_restarts + 1
            self.cluster.update(replace(pod, container_restarts=count, last_exit_code=1))
            self.in_place += 1

    @precondition(lambda self: self.cluster.live_pods("Pending", "Running"))
    @rule(data=st.data())
    def pod_is_evicted(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.cluster.live_pods("Pending", "Running")))
        self.cluster.update(replace(pod, phase="Failed", reason="Evicted", disrupted=True))

    @precondition(lambda self: self.cluster.live_pods("Running"))
    @rule(data=st.data())
    def pod_is_evicted_for_exceeding_its_storage_limit(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.cluster.live_pods("Running")))
        self.cluster.fail(replace(pod, reason="Evicted", over_limit=True), 137)

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def pod_is_deleted_by_a_user(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(list(self.cluster.pods.values())))
        if not pod.terminating:
            self.cluster.terminate(pod)

    @precondition(lambda self: self.cluster.live_pods("Pending", "Running"))
    @rule(data=st.data())
    def pod_is_preempted(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.cluster.live_pods("Pending", "Running")))
        self.cluster.terminate(replace(pod, disrupted=True, disruption_reason="PreemptionByScheduler"))

    @rule(node=st.sampled_from(["node-1", "node-2"]), state=st.sampled_from(NodeState))
    def node_changes(self, node: str, state: NodeState) -> None:
        self.cluster.nodes[node] = state

    @rule(node=st.sampled_from(NODES))
    def node_is_missing_from_the_cache(self, node: str) -> None:
        self.cluster.unconfirmed.add(node)

    @rule(node=st.sampled_from(NODES), state=st.sampled_from([NodeState.CUT_OFF, NodeState.GONE]))
    def pods_of_a_lost_node_are_deleted_and_time_passes(self, node: str, state: NodeState) -> None:
        self.cluster.nodes[node] = state
        for pod in [pod for pod in self.cluster.pods.values() if pod.node == node and not pod.terminating]:
            self.cluster.terminate(pod)
        self.cluster.advance(1000)
        self.cluster.sync()
        self.cluster.reconcile()

    @rule(
        node=st.sampled_from(NODES),
        cause=st.sampled_from(NoticeCause),
        seconds=st.sampled_from([None, 1, 30, 500]),
    )
    def node_announces_its_end(self, node: str, cause: NoticeCause, seconds: int | None) -> None:
        self.cluster.announce(node, cause, seconds)

    @rule(node=st.sampled_from(NODES), after=st.integers(0, 6))
    def node_announces_its_end_and_the_operator_crashes_while_it_answers(self, node: str, after: int) -> None:
        self.cluster.announce(node, NoticeCause.PREEMPTED, 60)
        self.cluster.sync()
        self.cluster.reconcile(crash_after=after)
        self.cluster.sync()
        self.cluster.reconcile()

    @rule(answers=st.booleans())
    def program_saves_a_checkpoint(self, answers: bool) -> None:
        self.cluster.save_checkpoint(answers=answers)

    @rule()
    def program_saves_a_checkpoint_when_its_pod_is_deleted(self) -> None:
        self.cluster.save_checkpoint(at_end=True)

    @rule(fails=st.booleans())
    def node_agent_saves_processes(self, fails: bool) -> None:
        self.cluster.finish_backups(failed=fails)

    @rule(node=st.sampled_from(NODES), after=st.integers(0, 6))
    def node_announces_its_end_and_the_operator_crashes_while_a_checkpoint_is_saved(
        self, node: str, after: int
    ) -> None:
        self.cluster.announce(node, NoticeCause.PREEMPTED, 60)
        self._work(1)
        self.cluster.save_checkpoint()
        self.cluster.finish_backups()
        self.cluster.sync()
        self.cluster.reconcile(crash_after=after)
        self._work(3)

    @rule(node=st.sampled_from(NODES))
    def announcement_is_withdrawn(self, node: str) -> None:
        self.cluster.announced.pop(node, None)

    @rule()
    def all_nodes_become_ready(self) -> None:
        self._make_nodes_ready()

    def _make_nodes_ready(self) -> None:
        self.cluster.nodes = dict.fromkeys(NODES, NodeState.READY)
        self.cluster.unconfirmed.clear()
        self.cluster.announced.clear()

    @rule(seconds=st.sampled_from([1, 15, 400, -30, -4000]))
    def clock_jumps(self, seconds: int) -> None:
        from datetime import timedelta

        self.cluster.now += timedelta(seconds=seconds)

    # The user.

    @precondition(lambda self: self.cluster.job)
    @rule(replicas=st.integers(2, 5))
    def scale(self, replicas: int) -> None:
        wanted = self._wanted()
        worker = replace(wanted.roles["worker"], replicas=replicas)
        self.cluster.edit(replace(wanted, roles={**wanted.roles, "worker": worker}))

    @precondition(lambda self: self.cluster.job)
    @rule()
    def suspend_or_resume(self) -> None:
        wanted = self._wanted()
        self.cluster.edit(replace(wanted, suspended=not wanted.suspended))

    @precondition(lambda self: self.cluster.job)
    @rule()
    def make_the_spec_invalid_or_valid(self) -> None:
        self.cluster.broken = not self.cluster.broken
        self.cluster.edit(self._wanted())

    @rule()
    def status_is_deleted(self) -> None:
        self.cluster.lose_record()
        self.wiped = True

    @rule()
    def crd_prunes_the_record(self) -> None:
        """A reconcile whose Record is pruned creates nothing."""
        pods, writes, self.cluster.prunes_record = set(self.cluster.pods), self.cluster.writes, True
        self.cluster.sync()
        self.cluster.reconcile()
        self.cluster.prunes_record = False
        if self.cluster.writes > writes:
            assert set(self.cluster.pods) <= pods
            self.wiped = True

    @precondition(lambda self: self.cluster.created_count > 6)
    @rule()
    def delete_the_job(self) -> None:
        self.cluster.delete_job()

    @rule()
    def job_converges_without_further_faults(self) -> None:
        cluster = self.cluster
        self._make_nodes_ready()
        cluster.broken = False
        cluster.settle()
        writes, pods = cluster.writes, dict(cluster.pods)
        cluster.sync()
        plan = cluster.reconcile()
        assert cluster.writes == writes, "a second reconcile writes nothing"
        assert cluster.pods == pods, "a second reconcile changes nothing"
        if cluster.job is None:
            assert not cluster.pods, "no orphans"
        elif plan:
            self._assert_converged(cluster.job.workload, plan.record)

    # Invariants.

    @invariant()
    def restarts_are_counted_once(self) -> None:
        record = self._record()
        if record is None or self.wiped:
            return
        assert record.restarts <= len(self.cluster.failed) + self.in_place
        wanted = self._wanted()
        escalates = (
            wanted.limits.escalation != Escalation()
            or wanted.rules.restart_scope is not RestartScope.POD
            or bool(wanted.rules.coordinators)
        )
        in_place = wanted.roles["worker"].replacement == ReplacementPolicy()
        if in_place and not escalates and record.attempt == 1 and not self.in_place:
            replaced = sum(sum(role.replacements.values()) for role in record.roles.values())
            assert replaced == record.restarts + record.disruptions

    @invariant()
    def restarts_are_recorded_once_with_their_cause(self) -> None:
        record = self._record()
        if record is None or self.wiped:
            return
        causes = Counter(entry.cause for entry in record.restart_history)
        assert causes.total() <= MAX_RESTART_HISTORY
        ended = [
            entry
            for entry in record.restart_history
            if entry.cause in (RestartCause.NON_ZERO_EXIT, RestartCause.SIGNAL)
        ]
        by_nodes = sum(entry.scope == CONTAINER for entry in ended)
        assert by_nodes <= self.in_place
        # A pod with too many container restarts is recorded twice: restarted in place, and then replaced.
        replaced_after = self.in_place if self._wanted().limits.escalation.container is not None else 0
        assert len(ended) - by_nodes <= len(self.cluster.failed) + replaced_after
        disrupted = [
            entry
            for entry in record.restart_history
            if entry.cause in (RestartCause.DELETED, RestartCause.PREEMPTED)
        ]
        deleted = Counter((role, index) for role, index, _ in self.cluster.deleted)
        assert Counter((entry.role, entry.index) for entry in disrupted) <= deleted
        assert not causes[RestartCause.CONTAINER_RESTART], "this cause is for metrics only"

    @invariant()
    def disruption_of_a_pod_is_recorded_once(self) -> None:
        cluster, record = self.cluster, self._record()
        self.disturbed |= cluster.deleted | {
            (pod.role, pod.index, pod.uid)
            for pod in cluster.pods.values()
            if pod.terminating or pod.ended or pod.node in cluster.announced or not self._has_good_node(pod)
        }
        if record is None or self.wiped:
            return
        recorded = Counter(
            (entry.role, entry.index) for entry in record.restart_history if entry.cause in DISRUPTIONS
        )
        assert recorded <= Counter((role, index) for role, index, _ in self.disturbed)

    def _has_good_node(self, pod: ObservedPod) -> bool:
        return not pod.node or self.cluster.nodes[pod.node] is NodeState.READY

    @invariant()
    def restarts_escalate_within_their_limits(self) -> None:
        record = self._record()
        if record is None or self.wiped:
            return
        wanted = self._wanted()
        most = wanted.limits.escalation.role
        for last in record.roles.values():
            scopes = {wanted.restart_scope(role) for role in wanted.roles.values()}
            assert not last.role_restarts_in_a_row or RestartScope.POD in scopes
            assert most is None or last.role_restarts_in_a_row <= most
            assert sum(last.failure_streaks.values()) <= record.restarts

    def _assert_converged(self, wanted: Workload, record: Record) -> None:
        pods = self.cluster.pods.values()
        if record.finished_at:
            kept = wanted.cleanup is CleanupPolicy.NONE
            assert kept or all(pod.ended for pod in pods)
            return
        if wanted.suspended:
            assert not pods
            return
        assert record.waiting is None or record.phase is not Phase.RUNNING or record.waiting.reason
        stopped = {pod.name for pod in pods if pod.uid in self.cluster.stopped and not pod.ended}
        assert not stopped or self.cluster.record_lost, "programs have stopped, and their pods are kept"
        for pod in pods:
            retired = pod.ended and pod.index in record.role(pod.role).retired
            assert is_current(record, pod) or retired, f"{pod} is left over"
        for name, spec in wanted.roles.items():
            last = record.role(name)
            ends = bool(spec.elastic and last.succeeded_indexes)  # then sizes do not change any more
            assert last.size == spec.replicas or ends
            existing = {pod.index for pod in pods if pod.role == name}
            if is_creation_held(spec, record):
                assert not existing, f"{name} is held, and has pods"
                continue
            for index in last.members:
                not_replaced = last.phase in (Phase.RUNNING, Phase.FAILED) and (
                    spec.restart is RestartPolicy.NEVER or not spec.replacement.deleted
                )
                done = index in last.succeeded_indexes or last.phase is Phase.SUCCEEDED
                assert index in existing or done or not_replaced, f"{name}-{index} is missing"

    def _restarts_in_place(self) -> bool:
        return bool(self.cluster.job) and self._wanted().roles["worker"].restart is RestartPolicy.ALWAYS

    def _wanted(self) -> Workload:
        assert self.cluster.job
        return self.cluster.job.workload

    def _record(self) -> Record | None:
        return decode(self.cluster.job.status) if self.cluster.job else None


class LongLife(Life):
    """The same, many more times."""


_COMMON = settings(deadline=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
Life.TestCase.settings = settings(_COMMON, max_examples=40, stateful_step_count=35)
LongLife.TestCase.settings = settings(_COMMON, max_examples=3000, stateful_step_count=60)
TestLife = Life.TestCase
TestLongLife = pytest.mark.long(pytest.mark.timeout(1800)(LongLife.TestCase))
