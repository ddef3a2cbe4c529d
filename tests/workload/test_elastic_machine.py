"""Tests reconciles of elastic roles under the same random faults as those of all jobs."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from argosy.dialects.ares.dialect import SEMANTICS as ARES
from argosy.workload.announcements import NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Elastic, Limits, RestartPolicy, Rules
from argosy.workload.semantics import Semantics
from tests.support.fake_cluster import NODES, FakeCluster
from tests.support.workloads import USUAL, role, workload
from tests.workload.test_machine import Life

RULES = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),), services=("worker",))


class ElasticLife(Life):
    """A job with an elastic role whose replicas come and go while it runs."""

    @initialize(
        bounds=st.sampled_from([Elastic(1, 6), Elastic(2, 3), Elastic(2, 6, 2)]),
        restarts=st.sampled_from([2, None]),
        coordinator=st.booleans(),
        node_down_as_failed=st.booleans(),
        checkpoint=st.sampled_from([None, CheckpointPolicy("file:///store/ns/job-uid", suspend_grace=20.0)]),
        semantics=st.sampled_from([Semantics(), ARES]),
    )
    def begin(
        self,
        bounds: Elastic,
        restarts: int | None,
        coordinator: bool,
        node_down_as_failed: bool,
        checkpoint: CheckpointPolicy | None,
        semantics: Semantics,
    ) -> None:
        policy = replace(USUAL, node_down_as_failed=node_down_as_failed)
        replicas = 4 if bounds.multiple_of > 1 else 3
        workers = role("worker", replicas, RestartPolicy.ON_FAILURE, policy, elastic=bounds)
        rules = replace(RULES, coordinators=("worker",) if coordinator else ())
        wanted = workload(workers, rules=rules, limits=Limits(restarts=restarts))
        self.cluster = FakeCluster(replace(wanted, checkpoint=checkpoint, semantics=semantics))
        self.cluster.settle()

    @precondition(lambda self: self.cluster.job)
    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        self._scale(data)

    @precondition(lambda self: self.cluster.job)
    @rule(data=st.data(), after=st.integers(0, 6), again=st.booleans(), answers=st.booleans())
    def role_is_scaled_and_the_operator_crashes_while_a_checkpoint_is_saved(
        self, data: st.DataObject, after: int, again: bool, answers: bool
    ) -> None:
        """Perhaps the size is changed again, or the checkpoint is late."""
        self._scale(data)
        self._work(1)
        if again:
            self._scale(data)
        if answers:
            self.cluster.save_checkpoint()
        else:
            self.cluster.advance(21)
        self.cluster.sync()
        self.cluster.reconcile(crash_after=after)
        self._work(2)

    def _scale(self, data: st.DataObject) -> None:
        wanted = self._wanted()
        worker = wanted.roles["worker"]
        assert worker.elastic
        sizes = [size for size in range(worker.elastic.max + 1) if worker.elastic.allows(size)]
        worker = replace(worker, replicas=data.draw(st.sampled_from(sizes)))
        self.cluster.edit(replace(wanted, roles={**wanted.roles, "worker": worker}))

    @rule(node=st.sampled_from(NODES), seconds=st.sampled_from([None, 60]))
    def node_announces_its_end_and_the_job_answers(self, node: str, seconds: int | None) -> None:
        self.cluster.announce(node, NoticeCause.PREEMPTED, seconds)
        self._work(2)

    @rule(node=st.sampled_from(NODES))
    def announcement_is_repeated_after_it_was_withdrawn(self, node: str) -> None:
        """A cache that lags shows the same."""
        announced = self.cluster.announced.pop(node, None)
        self._work(1)
        if announced is not None:
            self.cluster.announced[node] = announced
        self._work(1)

    @rule(slots=st.sampled_from([0, 1, 2, 3, 4, None]), works=st.booleans())
    def capacity_changes(self, slots: int | None, works: bool) -> None:
        """Pods beyond it are preempted."""
        self.cluster.slots = slots
        placed = [
            pod for pod in self.cluster.pods.values() if pod.node and not (pod.ended or pod.terminating)
        ]
        for pod in placed[slots if slots is not None else len(placed) :]:
            self.cluster.terminate(replace(pod, disrupted=True, disruption_reason="PreemptionByScheduler"))
        if works:
            self._work(3)

    @rule(seconds=st.sampled_from([10, 31, 700]))
    def time_passes_while_the_operator_works(self, seconds: int) -> None:
        self.cluster.advance(seconds)
        self._work(3)

    def _make_nodes_ready(self) -> None:
        super()._make_nodes_ready()
        self.cluster.slots = None

    @invariant()
    def size_is_always_allowed(self) -> None:
        record = self._record()
        if record is None or not self.cluster.job or not record.role("worker").declared:
            return
        last, bounds = record.role("worker"), self._wanted().roles["worker"].elastic
        assert bounds
        assert bounds.allows(last.size), f"{last.size} replicas are not allowed"
        assert last.size + len(last.joining) <= last.declared, "more replicas than declared"
        assert not last.joining - IndexSet.first(bounds.max), "an index above the maximum"
        assert not last.members & last.joining
        assert 0 in last.members or not self._wanted().rules.coordinators, "the coordinator was removed"


class LongElasticLife(ElasticLife):
    """The same, many more times."""


_COMMON = settings(deadline=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
ElasticLife.TestCase.settings = settings(_COMMON, max_examples=30, stateful_step_count=35)
LongElasticLife.TestCase.settings = settings(_COMMON, max_examples=1500, stateful_step_count=60)
TestElasticLife = ElasticLife.TestCase
TestLongElasticLife = pytest.mark.long(pytest.mark.timeout(1800)(LongElasticLife.TestCase))
