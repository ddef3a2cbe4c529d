"""Tests that invariants hold at every step of a rollout, in whatever order pods become ready."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from argosy.kinds.meta import ObjectMeta
from argosy.local.controllers.api_types import LabelSelector
from argosy.local.controllers.deployment.decide import decide
from argosy.local.controllers.deployment.rollout_state import max_surge, max_unavailable
from argosy.local.controllers.deployment.status import PROGRESSING, find_condition
from argosy.local.controllers.workloads import (
    Deployment,
    DeploymentSpec,
    ReplicaSet,
    ReplicaSetStatus,
    RollingUpdate,
    Strategy,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
AMOUNTS = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "10%", "25%", "50%", "100%"]))


@dataclass
class World:
    """A Deployment, its sets and how many pods of each are ready; the status of a set is as last observed."""

    deployment: Deployment
    sets: dict[str, ReplicaSet] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    now: datetime = START

    def step(self) -> bool:
        """One pass; whether it changed anything."""
        self.now += timedelta(seconds=1)
        plan = decide(self.deployment, list(self.sets.values()), self.now)
        if part := plan.create:
            meta = replace(part.replica_set.metadata, creation_timestamp=self.now)
            self._keep(ReplicaSet(meta, part.replica_set.spec), part.replicas, part.annotations)
        for part in plan.changed:
            self._keep(part.replica_set, part.replicas, part.annotations)
        for replica_set in plan.delete:
            del self.sets[replica_set.metadata.name]
        changed = bool(plan.create or plan.changed or plan.delete) or plan.status != self.deployment.status
        self.deployment = replace(self.deployment, status=plan.status)
        return changed

    def _keep(self, replica_set: ReplicaSet, replicas: int, notes: dict[str, str]) -> None:
        """A set of another size: pods that are not ready go first."""
        name = replica_set.metadata.name
        self.sets[name] = ReplicaSet(
            replace(replica_set.metadata, annotations=notes),
            replace(replica_set.spec, replicas=replicas),
            replica_set.status,
        )
        self.ready[name] = min(self.ready.get(name, 0), replicas)

    def happen(self, number: int) -> None:
        """Some set observes its pods, or a pod of it gets ready."""
        if self.sets:
            name = sorted(self.sets)[number // 2 % len(self.sets)]
            if number % 2:
                self.ready[name] = min(self.ready[name] + 1, self.sets[name].spec.replicas)
            else:
                self.observe(name)

    def observe(self, name: str) -> None:
        replica_set, ready = self.sets[name], self.ready[name]
        count = replica_set.spec.replicas
        self.sets[name] = replace(replica_set, status=ReplicaSetStatus(count, count, ready, ready, 0))

    def finish(self) -> None:
        for _ in range(200):
            for name, replica_set in self.sets.items():
                self.ready[name] = replica_set.spec.replicas
                self.observe(name)
            if not self.step() and self.sets:
                return
        raise AssertionError("the rollout does not come to rest")

    @property
    def wanted(self) -> int:
        return sum(replica_set.spec.replicas for replica_set in self.sets.values())

    @property
    def available(self) -> int:
        return sum(self.ready[name] for name in self.sets)

    def change(self, image: str, replicas: int | None = None) -> None:
        spec = replace(self.deployment.spec, template=template(image))
        if replicas is not None:
            spec = replace(spec, replicas=replicas)
        meta = replace(self.deployment.metadata, generation=self.deployment.metadata.generation + 1)
        self.deployment = replace(self.deployment, spec=spec, metadata=meta)


def template(image: str) -> dict[str, object]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"image": image}]}}


def world(replicas: int, strategy: Strategy) -> World:
    spec = DeploymentSpec(
        replicas=replicas,
        progress_deadline_seconds=600,
        revision_history_limit=2,
        selector=LabelSelector({"app": "a"}),
        strategy=strategy,
        template=template("v1"),
    )
    return World(Deployment(ObjectMeta(name="web", generation=1), spec))


@given(st.integers(0, 12), AMOUNTS, AMOUNTS, st.lists(st.integers(0, 7), max_size=60))
def test_a_rolling_update_respects_max_surge_and_max_unavailable(
    replicas: int, surge: int | str, unavailable: int | str, order: list[int]
) -> None:
    simulation = world(replicas, Strategy("RollingUpdate", RollingUpdate(surge, unavailable)))
    simulation.finish()
    simulation.change("v2")
    most = replicas + max_surge(simulation.deployment)
    least = replicas - max_unavailable(simulation.deployment)
    for number in order:
        simulation.step()
        assert simulation.wanted <= most
        assert simulation.available >= least
        simulation.happen(number)
    simulation.finish()
    sizes = sorted(replica_set.spec.replicas for replica_set in simulation.sets.values())
    assert sizes == [0, replicas]
    condition = find_condition(simulation.deployment.status, PROGRESSING)
    assert condition is not None
    assert condition.reason == "NewReplicaSetAvailable"


@given(st.integers(1, 12), st.integers(0, 12), st.lists(st.integers(0, 7), max_size=20))
def test_scaling_during_a_rollout_ends_at_the_new_size(before: int, after: int, order: list[int]) -> None:
    simulation = world(before, Strategy("RollingUpdate", RollingUpdate("25%", "25%")))
    simulation.finish()
    simulation.change("v2")
    for number in order:
        simulation.step()
        simulation.happen(number)
    simulation.change("v2", after)
    most = max(simulation.wanted, after + max_surge(simulation.deployment))
    for number in order:
        simulation.step()
        assert simulation.wanted <= most
        simulation.happen(number)
    simulation.finish()
    assert simulation.wanted == after
    assert len(simulation.sets) == 2


def test_old_revisions_are_deleted_beyond_the_limit_and_reused_by_a_rollback() -> None:
    simulation = world(1, Strategy("Recreate"))
    for image in ("v1", "v2", "v3", "v4", "v3"):
        simulation.change(image)
        simulation.finish()
    images = {name: replica_set.spec.template for name, replica_set in simulation.sets.items()}
    assert len(images) == 3
    revisions = sorted(
        replica_set.metadata.annotations["deployment.kubernetes.io/revision"]
        for replica_set in simulation.sets.values()
    )
    assert revisions == ["2", "4", "5"]
