"""Tests that a Job counts every pod once, whatever is interrupted."""

import random
from collections.abc import Callable
from functools import partial
from itertools import count

import msgspec
import pytest

from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.local.controllers.api_types import Job, JobStatus, Pod
from argosy.local.controllers.job.backoff import JobBackoff
from argosy.local.controllers.job.decide import TRACKING_FINALIZER, decide, finished_condition
from argosy.local.controllers.job.indexes import COMPLETION_INDEX
from tests.support.scheduler_objects import START

COMPLETIONS = 6


class World:
    """A job and its pods, with a controller that may die after any step of a pass."""

    def __init__(self, chance: random.Random, mode: str) -> None:
        self.chance = chance
        self.deadliness = 0.05
        spec = {
            "completions": COMPLETIONS,
            "parallelism": 3,
            "backoffLimit": 1000,
            "completionMode": mode,
        }
        self.job = msgspec.convert({"metadata": {"name": "j", "uid": "u"}, "spec": spec}, Job)
        self.pods: dict[str, Pod] = {}
        self.ends = {"Succeeded": 0, "Failed": 0}
        self._numbers = count()

    def controller_pass(self) -> None:
        plan = decide(self.job, tuple(self.pods.values()), START, JobBackoff(initial=0.0))
        steps: list[Callable[[], None]] = [partial(self.make, index) for index in plan.create]
        steps += [partial(self.drop, pod) for pod in plan.drop]
        steps += [partial(self.delete, pod) for pod in plan.stop]
        steps += [partial(self.write, plan.status)]
        steps += [partial(self.release, pod) for pod in plan.release]
        for step in steps:
            if self.chance.random() < self.deadliness:
                return
            step()

    def make(self, index: int | None) -> None:
        name = f"p{next(self._numbers)}"
        meta = ObjectMeta(name=name, uid=name, finalizers=[TRACKING_FINALIZER])
        meta.owner_references = [OwnerReference("batch/v1", "Job", "j", "u", controller=True)]
        meta.annotations = {} if index is None else {COMPLETION_INDEX: str(index)}
        self.pods[name] = Pod(meta)

    def write(self, status: JobStatus) -> None:
        self.job = Job(self.job.metadata, self.job.spec, status)

    def release(self, pod: Pod) -> None:
        if pod.metadata.name in self.pods:
            pod.metadata.finalizers = []
            self.settle(pod)

    def drop(self, pod: Pod) -> None:
        self.release(pod)
        self.delete(pod)

    def delete(self, pod: Pod) -> None:
        pod.metadata.deletion_timestamp = START
        self.settle(pod)

    def settle(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None and not pod.metadata.finalizers:
            self.pods.pop(pod.metadata.name, None)

    def something_happens(self) -> None:
        if not self.pods:
            return
        pod = self.chance.choice(list(self.pods.values()))
        match self.chance.randrange(4):
            case 0 if not pod.finished and pod.metadata.deletion_timestamp is None:
                self.end(pod, "Succeeded")
            case 1 if not pod.finished and pod.metadata.deletion_timestamp is None:
                self.end(pod, "Failed")
            case 2 if self.chance.random() < 0.3:
                if not pod.finished and pod.metadata.deletion_timestamp is None:
                    self.ends["Failed"] += 1
                self.delete(pod)
            case _:
                return

    def end(self, pod: Pod, phase: str) -> None:
        pod.status.phase = phase
        self.ends[phase] += 1


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("seed", range(40))
def test_every_pod_is_counted_once(seed: int, mode: str) -> None:
    world = World(random.Random(seed), mode)
    for _ in range(2000):
        if finished_condition(world.job) is not None:
            break
        world.controller_pass()
        world.something_happens()
    status = world.job.status
    assert [condition.type for condition in status.conditions][-1] == "Complete"
    assert status.succeeded == COMPLETIONS
    assert status.failed == world.ends["Failed"]
    if mode == "Indexed":
        assert status.completed_indexes == f"0-{COMPLETIONS - 1}"
    else:
        assert status.succeeded == world.ends["Succeeded"]
    world.deadliness = 0.0
    before = msgspec.json.encode(world.job)
    world.controller_pass()
    world.controller_pass()
    assert msgspec.json.encode(world.job) == before, "a finished job is left alone"
    assert not any(pod.metadata.finalizers for pod in world.pods.values())
