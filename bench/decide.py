"""The CPU time of one call of `decide`, for a job that runs and for one that starts.

Unchanged running jobs are decided most often, starting ones are the most urgent. The bound is one look at
each pod of the job.
"""

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from argosy.plan.actions import Apply
from argosy.plan.children import KubernetesObject
from argosy.workload.children import sync_children
from argosy.workload.decide import decide
from argosy.workload.model import Limits, RestartPolicy, Rules, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from bench.figures import Figure
from tests.support.workloads import NOW, existing_child, pod, role, workload

SMALL, MIDDLE, LARGE = 8, 200, 2000
ROUNDS = 15
"""The cheapest round counts: other load of the machine only adds time."""
DECISIONS = 4000
"""Number of pods in a round, over as many calls as that takes."""


class _Case(Struct, frozen=True):
    """A job with its Record, its observed pods and its children."""

    job: Workload
    record: Record
    pods: tuple[ObservedPod, ...]
    children: tuple[KubernetesObject, ...]

    def decide(self) -> None:
        observed = Observed(pods=self.pods, children=self.children)
        plan = decide(self.job, self.record, observed, NOW)
        assert not plan.actions, "a job that waits needs no actions"

    def look(self) -> None:
        """The bound."""
        assert sum(pod.phase == "Running" for pod in self.pods) <= len(self.pods)


def measure() -> Iterator[Figure]:
    seconds_per_pod: dict[int, float] = {}
    for size, unit, scale, target in ((SMALL, "us", 1e6, 100.0), (LARGE, "ms", 1e3, 20.0)):
        for word, share in (("steady", 1.0), ("starting", 0.5)):
            case = _case(size, share)
            seconds, bound = _seconds(case.decide, size), _seconds(case.look, size)
            yield Figure(
                f"decide_{size}_{word}_{unit}",
                seconds * scale,
                unit,
                bound * scale,
                "one look at each pod",
                target,
            )
            seconds_per_pod[size] = max(seconds_per_pod.get(size, 0.0), seconds / size)
    middle = _seconds(_case(MIDDLE, 1.0).decide, MIDDLE) / MIDDLE
    yield Figure(
        "decide_growth",
        seconds_per_pod[LARGE] / middle,
        "",
        1.0,
        f"time per pod of {LARGE} pods over {MIDDLE}",
        1.5,
    )


def _case(size: int, share: float) -> _Case:
    """Return a job of which this share of the pods run and the others are pending."""
    rules = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),), services=("worker",))
    job = workload(role("worker", size, RestartPolicy.ON_FAILURE), rules=rules, limits=Limits(restarts=3))
    pods = tuple(
        pod(index, "Running" if index < size * share else "Pending", node=f"node-{index % 50}")
        for index in range(size)
    )
    changes = sync_children(job, Record(), Observed(pods=pods))
    children = tuple(existing_child(change.child) for change in changes if isinstance(change, Apply))
    record: Record | None = None
    for _ in range(3):
        observed = Observed(pods=pods, children=children)
        record = decide(job, record, observed, NOW).record
    assert record is not None
    return _Case(job, record, pods, children)


def _seconds(call: Callable[[], None], size: int) -> float:
    calls = max(3, DECISIONS // size)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - start) / calls)
    return best
