"""Puts nodes into quarantine on which pods of jobs fail repeatedly, and ends quarantines that are over.

A quarantine is annotations on the Node, which every replica reads (`reconcile.nodes.QuarantinedNodes`):
new pods of the namespaces that it concerns are kept away by node affinity. The evidence is kept in memory
only: an operator that restarts sees a bad node a few failures later.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.engine.objects import Key
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.operator.job_metrics import NodeMetrics
from argosy.reconcile.caches import Caches
from argosy.workload import reasons
from argosy.workload.model import Workload
from argosy.workload.plan import Plan
from argosy.workload.quarantine import (
    NO_QUARANTINE,
    NodeFailure,
    NodeQuarantine,
    QuarantineRules,
    failure_on_node,
    find_suspects,
    is_recent,
    plan_quarantines,
    quarantine_annotations,
)
from argosy.workload.record import Record

log = Logger(__name__)

MAX_FAILURES = 256
"""Failed pods of a namespace that are remembered."""
MAX_SHOWN = 3
"""Namespaces whose failures the reason of a quarantine names."""
CHECK_SECONDS = 10.0
"""Seconds between two looks for quarantines that are over, or that could not be written."""


class Quarantine:
    """Collects failures from what is decided about jobs, and annotates nodes while this replica leads."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        clock: Clock,
        recorder: Recorder,
        rules: QuarantineRules,
        metrics: NodeMetrics,
    ) -> None:
        self._client = client
        self._nodes: Cache[Node] = caches.nodes
        self._quarantined = caches.quarantined
        self._clock = clock
        self._recorder = recorder
        self._rules = rules
        self._failures: dict[str, deque[NodeFailure]] = {}
        """By namespace, so that many failures of one do not displace those of others."""
        self._changed = asyncio.Event()
        self._metrics = metrics
        metrics.quarantined.set_function(caches.quarantined.count)

    def record_plan(
        self, kind: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None:
        """Remember the pods of a job that have failed."""
        if not self._rules.enabled or workload is None:
            return
        now = self._clock.now()
        failures = [
            failure
            for pod in plan.transitions.failed_pods
            if (failure := failure_on_node(workload, pod, now)) is not None
        ]
        if failures:
            self._failures.setdefault(key.namespace, deque(maxlen=MAX_FAILURES)).extend(failures)
            self._changed.set()

    def forget_job(self, kind: str, key: Key) -> None:
        """Keep the failures of a deleted job: they say something about nodes."""

    async def run(self) -> None:
        """Annotate nodes until cancelled; only the leader does."""
        while True:
            await self._end_quarantines()
            await self._quarantine_suspects()
            self._changed.clear()
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _quarantine_suspects(self) -> None:
        now = self._clock.now()
        self._keep_failures(lambda failure: is_recent(failure, self._rules, now))
        failures = [failure for remembered in self._failures.values() for failure in remembered]
        suspects = {
            name: causes
            for name, causes in find_suspects(failures, self._rules, now).items()
            if self._nodes.get("", name) is not None
        }
        planned = plan_quarantines(suspects, self._quarantined.all(), len(self._nodes), self._rules, now)
        for name, quarantine in planned.items():
            node = self._nodes.get("", name)
            if node is not None:
                await self._start(node, quarantine, suspects[name])

    async def _start(self, node: Node, quarantine: NodeQuarantine, causes: Mapping[str, str]) -> None:
        name = node.metadata.name
        causes = {key: why for key, why in causes.items() if key in (quarantine.namespaces or causes)}
        shown = sorted(causes.items())[:MAX_SHOWN]
        reason = "; ".join(f"namespace {namespace}: {why}" for namespace, why in shown)
        annotations = quarantine_annotations(quarantine, reason)
        if not await self._annotate(node, annotations):
            return
        # The same failures must not lead to another quarantine when this one has ended.
        self._keep_failures(lambda failure: failure.node != name or failure.namespace not in causes)
        self._metrics.quarantines.inc()
        scope = ", ".join(sorted(quarantine.namespaces)) or "all namespaces"
        until = annotations[labels.QUARANTINE_UNTIL]
        log.warning("node in quarantine", node=name, reason=reason, until=until, scope=scope)
        message = f"no new pods of jobs of {scope} until {until}: {reason}"
        self._recorder.event(node, "Warning", reasons.NODE_QUARANTINED, message)

    def _keep_failures(self, keep: Callable[[NodeFailure], bool]) -> None:
        kept = {name: deque(filter(keep, items), MAX_FAILURES) for name, items in self._failures.items()}
        self._failures = {name: items for name, items in kept.items() if items}

    async def _end_quarantines(self) -> None:
        now = self._clock.now()
        for name in [name for name, item in self._quarantined.all().items() if item.until <= now]:
            node = self._nodes.get("", name)
            if node is not None and await self._annotate(node, NO_QUARANTINE):
                self._recorder.event(
                    node, "Normal", reasons.QUARANTINE_ENDED, "new pods of jobs are placed again"
                )

    async def _annotate(self, node: Node, annotations: Mapping[str, str | None]) -> bool:
        """Patch the annotations of the Node with this uid; False if that was not possible."""
        meta = node.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        try:
            self._nodes.put(await self._client.patch(Node, meta.name, patch))
        except (NotFound, Conflict):
            return False  # deleted, or another node of that name
        except ApiError as error:
            log.warning("cannot annotate a node", node=meta.name, error=str(error))
            return False
        return True
