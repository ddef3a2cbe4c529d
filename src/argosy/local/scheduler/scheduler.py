"""The scheduler: maintains the cache of nodes and pods, runs passes, and binds the placed pods.

A pass decides about all pending pods in memory, without awaiting. Binds then run concurrently, also with the
next pass, because a placed pod is assumed to be bound. If a bind fails, the pod's resources are released and
it is pending again. The reason why a pod or group is pending is written once per reason, not once per
attempt.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Coroutine, Mapping

from argosy.engine.cache import Change
from argosy.engine.client import PatchType
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import ApiError, Conflict, NotFound, Throttled, Unavailable
from argosy.engine.logs import Logger
from argosy.local.controllers.api_types import Namespace, Node, Pod, PodGroup
from argosy.local.controllers.informers import ControllerContext, pod_group_name
from argosy.local.scheduler.decide import can_enqueue, decide, parse_min_resources
from argosy.local.scheduler.gangs import Gang
from argosy.local.scheduler.outcome import GangOutcome, GroupKey, Victim
from argosy.local.scheduler.podgroup_status import group_status, status_patch
from argosy.local.scheduler.scheduler_cache import VOLCANO_TASK_ANNOTATION, PodInfo, SchedulerCache

SCHEDULER_NAMES = ("default-scheduler", "volcano")
ALL_PENDING = "everything that waits"
MAX_BIND_ATTEMPTS = 4

log = Logger(__name__)


class Scheduler:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._cache = SchedulerCache()
        self._waiting: dict[str, PodInfo] = {}
        self._binding: set[str] = set()
        """Uids of pods that are placed, but not yet observed with a node name."""
        self._writing_reasons: set[str] = set()
        """Uids of pods whose reason is being written: one write at a time, so that the newest is the last."""
        self._reported_groups: dict[str, str] = {}
        """The last problem reported for each invalid group, so that it is reported once."""
        self._changed_groups: set[GroupKey] = set()
        self._unqueued_groups: set[GroupKey] = set()
        """Groups whose minResources do not fit yet, often before they have any pod."""
        self._controller = Controller("scheduler", self._schedule, concurrency=1)
        self._tasks: set[asyncio.Task[None]] = set()
        context.nodes.subscribe(self._node_changed)
        context.pods.subscribe(self._pod_changed)
        context.pod_groups.subscribe(self._group_changed)
        context.namespaces.subscribe(self._namespace_changed)

    async def run(self) -> None:
        self._controller.enqueue(ALL_PENDING)
        try:
            await self._controller.run()
        finally:
            for task in self._tasks:
                task.cancel()

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._cache.set_node(change.new)
        elif change.old is not None:
            self._cache.remove_node(change.old.metadata.name)
        self._changed_groups |= self._unqueued_groups
        self._request_pass()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.new is not None:
            self._cache.topology.namespaces[change.new.metadata.name] = change.new.metadata.labels
        elif change.old is not None:
            self._cache.topology.namespaces.pop(change.old.metadata.name, None)

    def _group_changed(self, change: Change[PodGroup]) -> None:
        group = change.new or change.old
        if group is not None:
            self._changed_groups.add((group.metadata.namespace, group.metadata.name))
        self._request_pass()

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        either = new or old
        if either is None:
            return
        uid = either.metadata.uid
        if group := pod_group_name(either):
            self._changed_groups.add((either.metadata.namespace, group))
        if new is None or new.finished:
            self._release(uid)
            self._cache.terminating.discard(uid)
            self._waiting.pop(uid, None)
            self._binding.discard(uid)
        elif new.spec.node_name:
            self._waiting.pop(uid, None)
            self._binding.discard(uid)
            if old is not None and old.metadata.labels != new.metadata.labels:
                self._cache.remove(uid)
            if self._cache.node_of(uid) != new.spec.node_name:
                self._cache.place(self._pod_info(new), new.spec.node_name)
            if new.metadata.deletion_timestamp is not None:
                self._cache.terminating.add(uid)
        elif _is_schedulable(new):
            if uid not in self._binding:
                self._waiting[uid] = self._pod_info(new)
        else:
            self._waiting.pop(uid, None)
        self._request_pass()

    def _release(self, uid: str) -> None:
        """Release the resources of a pod; groups that did not fit may fit now."""
        if self._cache.node_of(uid) is not None:
            self._cache.remove(uid)
            self._changed_groups |= self._unqueued_groups

    def _pod_info(self, pod: Pod) -> PodInfo:
        priority = pod.spec.priority
        if priority is None:
            priority_class = self._context.priority_classes.get("", pod.spec.priority_class_name)
            priority = priority_class.value if priority_class else 0
        return PodInfo.of(pod, priority)

    def _request_pass(self) -> None:
        if self._waiting or self._changed_groups:
            self._controller.enqueue(ALL_PENDING)

    async def _schedule(self, _: str) -> Requeue | None:
        touched, self._changed_groups = self._changed_groups, set()
        touched |= {(info.namespace, info.group) for info in self._waiting.values() if info.group}
        gangs = {key: gang for key in touched if (gang := self._gang(key)) is not None}
        self._unqueued_groups -= touched
        self._unqueued_groups |= {key for key, gang in gangs.items() if not gang.queued}
        decision = decide(self._cache, self._waiting.values(), gangs, self._gang)
        for info, node in decision.bind:
            self._waiting.pop(info.uid, None)
            self._binding.add(info.uid)
            self._run_task(self._bind(info, node))
        for victim in decision.victims:
            self._cache.terminating.add(victim.victim.uid)
            self._run_task(self._evict(victim))
        for info, message in decision.unschedulable:
            node = decision.nominated.get(info.uid, "")
            if info.uid not in self._writing_reasons and not _has_reason(info.pod, message, node):
                self._writing_reasons.add(info.uid)
                self._run_task(self._write_reason(info.pod, message, node))
        for key, gang in gangs.items():
            self._update_group(key, gang, decision.gangs.get(key))
        return None

    def _gang(self, key: GroupKey) -> Gang | None:
        group = self._context.pod_groups.get(*key)
        if group is None:
            return None
        bound = Counter(
            pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")
            for pod in self._context.pods.by("group", f"{key[0]}/{key[1]}")
            if self._counts_as_bound(pod)
        )
        try:
            least = parse_min_resources(group.spec.min_resources)
        except ValueError as error:
            # Nothing checks this field of a custom resource; one bad group must not stop the others.
            least = {}
            text = f"spec.minResources: {error}"
            if self._reported_groups.get(group.metadata.uid) != text:
                self._reported_groups[group.metadata.uid] = text
                self._context.events.event(group, "Warning", "InvalidResources", text)
        started = group.status.phase in ("Inqueue", "Running", "Unknown", "Completed")
        queued = started or not least or can_enqueue(self._cache, least)
        return Gang(group.spec.min_member, group.spec.min_task_member, bound, queued)

    def _counts_as_bound(self, pod: Pod) -> bool:
        if pod.status.phase == "Succeeded":
            return True
        if pod.finished or pod.metadata.deletion_timestamp is not None:
            return False
        return bool(pod.spec.node_name) or pod.metadata.uid in self._binding

    def _run_task(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, info: PodInfo, node: str) -> None:
        meta = info.pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = Pod.resource.path(meta.name, meta.namespace, "binding")
        try:
            await self._post_with_retry(path, body)
        except ApiError as error:
            if not isinstance(error, NotFound | Conflict):
                log.warning("bind failed", pod=f"{meta.namespace}/{meta.name}", node=node, error=str(error))
            self._binding.discard(meta.uid)
            self._undo_placement(info)
        else:
            message = f"Successfully assigned {meta.namespace}/{meta.name} to {node}"
            self._context.events.event(info.pod, "Normal", "Scheduled", message)

    async def _post_with_retry(self, path: str, body: Mapping[str, object]) -> None:
        """Retry a write that may have succeeded: a second bind is rejected and does no harm."""
        for attempt in range(1, MAX_BIND_ATTEMPTS + 1):
            try:
                await self._context.client.request("POST", path, body=body)
                return
            except (Unavailable, Throttled):
                if attempt == MAX_BIND_ATTEMPTS:
                    raise
                await asyncio.sleep(0.2 * attempt)

    def _undo_placement(self, info: PodInfo) -> None:
        """Return a pod whose bind was rejected to the state that the cache has."""
        pod = self._context.pods.get(info.namespace, info.pod.metadata.name)
        if pod is None or pod.metadata.uid != info.uid or pod.spec.node_name:
            if pod is None or pod.metadata.uid != info.uid:
                self._release(info.uid)
                self._request_pass()
            return
        self._release(info.uid)
        if _is_schedulable(pod):
            self._waiting[info.uid] = info
            self._controller.enqueue(ALL_PENDING, 0.5)

    async def _evict(self, victim: Victim) -> None:
        """Set the DisruptionTarget condition on a victim, then delete it."""
        meta = victim.victim.pod.metadata
        name = victim.preemptor.pod.spec.scheduler_name
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": self._context.clock.now().replace(microsecond=0),
        }
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._context.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
            await self._context.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return  # deleted or replaced: the watch delivers what is there
        except ApiError as error:
            log.warning("pod not preempted", pod=f"{meta.namespace}/{meta.name}", error=str(error))
            self._cache.terminating.discard(meta.uid)
            self._controller.enqueue(ALL_PENDING, 0.5)
        else:
            message = f"Preempted by pod {victim.preemptor.uid} on node {victim.node}"
            self._context.events.event(victim.victim.pod, "Normal", "Preempted", message)

    async def _write_reason(self, pod: Pod, message: str, node: str) -> None:
        """Write why the pod is pending; the next pass checks whether that is still true.

        `node` is the nominated node, if victims are terminating there.
        """
        self._context.events.event(pod, "Warning", "FailedScheduling", message)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": self._context.clock.now().replace(microsecond=0),
        }
        meta = pod.metadata
        status = {"conditions": [condition], "nominatedNodeName": node or None}
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            written = await self._context.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except ApiError as error:
            self._writing_reasons.discard(meta.uid)
            if not isinstance(error, NotFound | Conflict):
                log.warning("status not written", pod=f"{meta.namespace}/{meta.name}", error=str(error))
                self._controller.enqueue(ALL_PENDING, 0.5)
        else:
            self._writing_reasons.discard(meta.uid)
            self._context.pods.put(written)
            self._request_pass()

    def _update_group(self, key: GroupKey, gang: Gang, outcome: GangOutcome | None) -> None:
        group = self._context.pod_groups.get(*key)
        if group is None:
            return
        status = group_status(
            group,
            self._context.pods.by("group", f"{key[0]}/{key[1]}"),
            outcome,
            queued=gang.queued,
            now=self._context.clock.now().replace(microsecond=0),
            transition=str(uuid.uuid4()),
        )
        if status != group.status:
            self._run_task(self._write_group(group, status_patch(status)))

    async def _write_group(self, group: PodGroup, patch: dict[str, object]) -> None:
        meta = group.metadata
        try:
            written = await self._context.client.patch(
                PodGroup,
                meta.name,
                {"metadata": {"resourceVersion": meta.resource_version}, **patch},
                meta.namespace,
                subresource="status",
            )
        except ApiError as error:
            if not isinstance(error, NotFound | Conflict):
                log.warning("group not written", group=f"{meta.namespace}/{meta.name}", error=str(error))
                self._changed_groups.add((meta.namespace, meta.name))
                self._controller.enqueue(ALL_PENDING, 1.0)
        else:
            self._context.pod_groups.put(written)


def _is_schedulable(pod: Pod) -> bool:
    return (
        pod.spec.scheduler_name in SCHEDULER_NAMES
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
    )


def _has_reason(pod: Pod, message: str, node: str) -> bool:
    return pod.status.nominated_node_name == node and any(
        condition.type == "PodScheduled" and (condition.status, condition.message) == ("False", message)
        for condition in pod.status.conditions
    )
