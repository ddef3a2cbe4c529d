"""Whole rollouts, with pods that get ready in any order: what a user relies on holds at every step."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from argosy.kinds.meta import ObjectMeta
from argosy.local.controllers.deployment.decide import decide
from argosy.local.controllers.deployment.parts import max_surge, max_unavailable
from argosy.local.controllers.deployment.status import PROGRESSING, find
from argosy.local.controllers.kinds import LabelSelector
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
    """A Deployment and its sets; pods appear at once and get ready when `settle` is called."""

    deployment: Deployment
    sets: dict[str, ReplicaSet] = field(default_factory=dict)
    now: datetime = START

    def step(self) -> bool:
        """One pass; whether it changed anything."""
        self.now += timedelta(seconds=1)
        plan = decide(self.deployment, list(self.sets.values()), self.now)
        if part := plan.create:
            spec = replace(part.set.spec, replicas=part.replicas)
            meta = replace(part.set.metadata, annotations=part.notes, creation_timestamp=self.now)
            self.sets[part.name] = ReplicaSet(meta, spec)
        for part in plan.changed:
            spec = replace(part.set.spec, replicas=part.replicas)
            meta = replace(part.set.metadata, annotations=part.notes)
            self.sets[part.name] = ReplicaSet(meta, spec, part.set.status)
        for each in plan.delete:
            del self.sets[each.metadata.name]
        acted = bool(plan.create or plan.changed or plan.delete)
        changed = acted or plan.status != self.deployment.status
        self.deployment = replace(self.deployment, status=plan.status)
        for name, each in self.sets.items():
            self.settle(name, min(each.status.available_replicas, each.spec.replicas))
        return changed

    def settle(self, name: str, available: int) -> None:
        each = self.sets[name]
        count = each.spec.replicas
        self.sets[name] = replace(each, status=ReplicaSetStatus(count, count, available, available, 0))

    def ready_one(self, number: int) -> None:
        """One more pod of some set gets ready."""
        waiting = [n for n, s in sorted(self.sets.items()) if s.status.available_replicas < s.spec.replicas]
        if waiting:
            name = waiting[number % len(waiting)]
            self.settle(name, self.sets[name].status.available_replicas + 1)

    def all_ready(self) -> None:
        for name, each in self.sets.items():
            self.settle(name, each.spec.replicas)

    def finish(self) -> None:
        for _ in range(200):
            if not self.step():
                return
            self.all_ready()
        raise AssertionError("the rollout does not come to rest")

    @property
    def wanted(self) -> int:
        return sum(each.spec.replicas for each in self.sets.values())

    @property
    def available(self) -> int:
        return sum(each.status.available_replicas for each in self.sets.values())

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


@given(st.integers(0, 12), AMOUNTS, AMOUNTS, st.lists(st.integers(0, 7), max_size=40))
def test_a_rolling_update_stays_within_its_bounds(
    replicas: int, surge: int | str, unavailable: int | str, order: list[int]
) -> None:
    there = world(replicas, Strategy("RollingUpdate", RollingUpdate(surge, unavailable)))
    there.finish()
    there.change("v2")
    most = replicas + max_surge(there.deployment)
    least = replicas - max_unavailable(there.deployment)
    for number in order:
        there.step()
        assert there.wanted <= most
        assert there.available >= least
        there.ready_one(number)
    there.finish()
    sizes = sorted(each.spec.replicas for each in there.sets.values())
    assert sizes == [0, replicas]
    found = find(there.deployment.status, PROGRESSING)
    assert found is not None
    assert found.reason == "NewReplicaSetAvailable"


@given(st.integers(1, 12), st.integers(0, 12), st.lists(st.integers(0, 7), max_size=20))
def test_scaling_in_the_middle_of_a_rollout_ends_at_the_new_size(
    before: int, after: int, order: list[int]
) -> None:
    there = world(before, Strategy("RollingUpdate", RollingUpdate("25%", "25%")))
    there.finish()
    there.change("v2")
    for number in order:
        there.step()
        there.ready_one(number)
    there.change("v2", after)
    there.finish()
    assert there.wanted == after
    assert len(there.sets) == 2


def test_old_revisions_are_forgotten_and_found_again() -> None:
    there = world(1, Strategy("Recreate"))
    for image in ("v1", "v2", "v3", "v4", "v3"):
        there.change(image)
        there.finish()
    images = {name: each.spec.template for name, each in there.sets.items()}
    assert len(images) == 3
    revisions = sorted(
        each.metadata.annotations["deployment.kubernetes.io/revision"] for each in there.sets.values()
    )
    assert revisions == ["2", "4", "5"]
