"""Replays a trace of lost spot machines on a simulated cluster with one job.

A trace is a CSV file with the columns `at` (seconds), `node`, `event` and `seconds`: a node is `preempted`,
with a notice so many seconds before it is gone, or has `vanished`; a new machine of its name is `back`; the
operator is down for some seconds (`operator-down`). Between events, time passes in steps of what has to
happen next, and the replay adds up itself what the job has used.
"""

import csv
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.announcements import NoticeCause
from argosy.workload.model import Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.usage_record import PricedNode
from tests.support.fake_cluster import NODES, FakeCluster, NodeState

START_SECONDS = 20.0
"""Until a pod that was placed runs, and until one that ends is gone."""
SAVE_SECONDS = 12.0
MAX_STEP_SECONDS = 1800.0


class Event(Struct, frozen=True):
    at: float
    node: str
    event: str
    seconds: float


def read_trace(path: Path) -> list[Event]:
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return [
            Event(float(row["at"]), row["node"], row["event"], float(row["seconds"] or 0)) for row in rows
        ]


class SpotTrace(FakeCluster):
    """A cluster whose nodes cost something and come and go."""

    def __init__(self, workload: Workload, prices: Sequence[float]) -> None:
        super().__init__(workload)
        self.prices = dict(zip(NODES, prices, strict=True))
        self.placed_at: dict[str, datetime] = {}
        """When the pod of a node was scheduled."""
        self.elapsed = 0.0
        self.replica_seconds = 0.0
        """Wanted replicas times the seconds for which they were wanted."""
        self.dollars = 0.0
        """Prices of nodes with pods, times the hours for which they had them."""
        self._operator_is_back_at = 0.0

    @property
    def record(self) -> Record:
        stored = decode(self.job.status) if self.job else None
        assert stored is not None
        return stored

    def replay(self, events: Sequence[Event]) -> None:
        pending = sorted(events, key=lambda event: event.at)
        pending += [Event(e.at + e.seconds, e.node, "gone", 0) for e in pending if e.event == "preempted"]
        for event in sorted(pending, key=lambda event: event.at):
            self.run_until(event.at)
            self._happen(event)

    def run_until(self, end: float) -> None:
        """Let the operator, kubelets and the program work until this second."""
        while self.elapsed < end:
            down = self.elapsed < self._operator_is_back_at
            plan = None if down else self._work()
            self._pass_time(min(end - self.elapsed, self._next_step(plan, down=down)))

    def finish(self) -> Record:
        """Let all pods succeed, and return the last Record."""
        self.run_until(self.elapsed + 600)
        for pod in self.live_pods("Running"):
            self.update(replace(pod, phase="Succeeded", exit_code=0))
        self._work()
        return self.record

    def observe(self) -> Observed:
        return replace(super().observe(), priced_nodes=self._priced_nodes())

    def _work(self) -> Plan | None:
        self.sync()
        return self.reconcile()

    def _next_step(self, plan: Plan | None, *, down: bool) -> float:
        """Return the seconds until something has to be done."""
        waits = [MAX_STEP_SECONDS]
        if any(pod.terminating or pod.phase == "Pending" for pod in self.pods.values()):
            waits.append(START_SECONDS)
        if not down and self.record.order_in_force:
            waits.append(SAVE_SECONDS)
        if down:
            waits.append(self._operator_is_back_at - self.elapsed)
        elif plan is None or plan.actions:
            waits.append(1.0)
        elif plan.requeue_at is not None:
            waits.append(max((plan.requeue_at - self.now).total_seconds(), 1.0))
        return min(waits)

    def _pass_time(self, seconds: float) -> None:
        stored = decode(self.job.status) if self.job else None
        if stored is not None and not stored.finished_at:
            self.replica_seconds += seconds * sum(len(role.wanted) for role in stored.roles.values())
        self.dollars += self._price() * seconds / 3600
        saves = stored is not None and stored.order_in_force and seconds >= SAVE_SECONDS
        self.advance(seconds)
        self.elapsed += seconds
        if saves:
            self.save_checkpoint()
        if seconds >= START_SECONDS:
            self.tick()

    def _happen(self, event: Event) -> None:
        match event.event:
            case "preempted":
                self.announce(event.node, NoticeCause.PREEMPTED, event.seconds)
            case "gone" | "vanished":
                self.nodes[event.node] = NodeState.GONE
                self.announced.pop(event.node, None)
                self._collect_pods(event.node)
            case "back":
                self.nodes[event.node] = NodeState.READY
            case "operator-down":
                self.restart(0)
                self._operator_is_back_at = event.at + event.seconds
            case other:
                raise AssertionError(other)

    def _collect_pods(self, node: str) -> None:
        """Do what the garbage collector of pods does: mark those of a node that is gone, and delete them."""
        pods = [pod for pod in self.pods.values() if pod.node == node]
        for pod in pods:
            self.update(replace(pod, phase="Failed", disrupted=True, disruption_reason="DeletionByPodGC"))
        self.sync()
        for pod in pods:
            self.remove(pod)

    def _price(self) -> float:
        used = {pod.node for pod in self.pods.values() if pod.node}
        return sum(self.prices[name] for name in used)

    def _priced_nodes(self) -> tuple[PricedNode, ...]:
        used = sorted({pod.node for pod in self.pods.values() if pod.node})
        return tuple(PricedNode(self.prices[name], self.placed_at[name]) for name in used)

    def _place_pods(self) -> None:
        """Place one pod on each working node of which no end is announced."""
        for pod in list(self.pods.values()):
            if not pod.node and not pod.terminating and (node := self._free_node()):
                self.update(replace(pod, node=node, waiting_reason=""))
                self.placed_at[node] = self.now

    def _free_node(self) -> str:
        used = {pod.node for pod in self.pods.values()}
        for name, state in self.nodes.items():
            if state.works and name not in used and name not in self.announced:
                return name
        return ""
