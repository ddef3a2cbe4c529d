"""The decide loop: what one decision about a job costs, by the CPU time of this process.

A job that runs and has nothing to tell is decided upon most often, one that starts most urgently. The bound
is one look at each of its pods.
"""

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from argosy.workload.decide import decide
from argosy.workload.model import Limits, RestartPolicy, Rules, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from bench.figures import Figure
from tests.support.workloads import NOW, pod, role, workload

SMALL, MIDDLE, LARGE = 8, 200, 2000
ROUNDS = 15
"""Of which the cheapest counts: what the machine adds is never less than nothing."""
DECISIONS = 4000
"""Pods that are decided upon in a round, in as many jobs as that takes."""


class _Scene(Struct, frozen=True):
    """A job, what is remembered of it and what is seen."""

    job: Workload
    record: Record
    pods: tuple[ObservedPod, ...]

    def decide(self) -> None:
        seen = Observed(pods=self.pods, children={("Service", "job-worker"): ""})
        plan = decide(self.job, self.record, seen, NOW)
        assert not plan.actions, "there is nothing to do but to wait"

    def look(self) -> None:
        """The bound."""
        assert sum(one.phase == "Running" for one in self.pods) <= len(self.pods)


def measure() -> Iterator[Figure]:
    each: dict[int, float] = {}
    for size, unit, scale, target in ((SMALL, "us", 1e6, 100.0), (LARGE, "ms", 1e3, 20.0)):
        for word, share in (("steady", 1.0), ("starting", 0.5)):
            scene = _scene(size, share)
            took, bound = _seconds(scene.decide, size), _seconds(scene.look, size)
            yield Figure(
                f"decide_{size}_{word}_{unit}", took * scale, unit, bound * scale, "one look at each", target
            )
            each[size] = max(each.get(size, 0.0), took / size)
    middle = _seconds(_scene(MIDDLE, 1.0).decide, MIDDLE) / MIDDLE
    yield Figure("decide_growth", each[LARGE] / middle, "", 1.0, f"a pod of 2,000 over one of {MIDDLE}", 1.5)


def _scene(size: int, share: float) -> _Scene:
    """A job of which this share of the pods run and the others are on their way."""
    rules = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),), services=("worker",))
    job = workload(role("worker", size, RestartPolicy.ON_FAILURE), rules=rules, limits=Limits(restarts=3))
    pods = tuple(
        pod(index, "Running" if index < size * share else "Pending", node=f"node-{index % 50}")
        for index in range(size)
    )
    record: Record | None = None
    for _ in range(3):
        seen = Observed(pods=pods, children={("Service", "job-worker"): ""})
        record = decide(job, record, seen, NOW).record
    assert record is not None
    return _Scene(job, record, pods)


def _seconds(once: Callable[[], None], size: int) -> float:
    times = max(3, DECISIONS // size)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(times):
            once()
        best = min(best, (time.process_time() - began) / times)
    return best
