"""The scheduler at work: keeps the world, runs a pass when something waits, binds what was decided.

One pass decides about everything that waits, in memory and without an await in between; the binds then go
out side by side while the next pass may already run, for a decided pod counts as placed. If a bind fails
the pod gives its room back and waits again. Pods and groups are told why they wait once per reason, not
once per attempt.
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
from argosy.local.controllers.informers import Shared, group_of
from argosy.local.controllers.kinds import Namespace, Node, Pod, PodGroup
from argosy.local.scheduler.decide import decide, least_resources, queueable
from argosy.local.scheduler.gangs import Gang
from argosy.local.scheduler.outcome import GangOutcome, GroupKey, Victim
from argosy.local.scheduler.podgroup_status import group_status, status_patch
from argosy.local.scheduler.scheduler_cache import VOLCANO_TASK_ANNOTATION, PodFacts, World

NAMES = ("default-scheduler", "volcano")
EVERYTHING = "everything that waits"
BIND_TRIES = 4

log = Logger(__name__)


class Scheduler:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._world = World()
        self._waiting: dict[str, PodFacts] = {}
        self._binding: set[str] = set()
        """Decided, and not yet seen with their node."""
        self._telling: set[str] = set()
        """Pods that are being told why they wait: one word at a time, or an older one could be the last."""
        self._told: dict[str, str] = {}
        """What each bad group was last told, so that it is told once."""
        self._touched: set[GroupKey] = set()
        self._held: set[GroupKey] = set()
        """Groups that wait for their least resources, often before they have any pod."""
        self._controller = Controller("scheduler", self._pass, concurrency=1)
        self._tasks: set[asyncio.Task[None]] = set()
        shared.nodes.subscribe(self._node_changed)
        shared.pods.subscribe(self._pod_changed)
        shared.groups.subscribe(self._group_changed)
        shared.namespaces.subscribe(self._namespace_changed)

    async def run(self) -> None:
        self._controller.enqueue(EVERYTHING)
        try:
            await self._controller.run()
        finally:
            for task in self._tasks:
                task.cancel()

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._world.set_node(change.new)
        elif change.old is not None:
            self._world.remove_node(change.old.metadata.name)
        self._touched |= self._held
        self._wake()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.new is not None:
            self._world.census.namespaces[change.new.metadata.name] = change.new.metadata.labels
        elif change.old is not None:
            self._world.census.namespaces.pop(change.old.metadata.name, None)

    def _group_changed(self, change: Change[PodGroup]) -> None:
        group = change.new or change.old
        if group is not None:
            self._touched.add((group.metadata.namespace, group.metadata.name))
        self._wake()

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        either = new or old
        if either is None:
            return
        uid = either.metadata.uid
        if group := group_of(either):
            self._touched.add((either.metadata.namespace, group))
        if new is None or new.finished:
            self._free(uid)
            self._world.leaving.discard(uid)
            self._waiting.pop(uid, None)
            self._binding.discard(uid)
        elif new.spec.node_name:
            self._waiting.pop(uid, None)
            self._binding.discard(uid)
            if old is not None and old.metadata.labels != new.metadata.labels:
                self._world.remove(uid)
            if self._world.where(uid) != new.spec.node_name:
                self._world.place(self._facts(new), new.spec.node_name)
            if new.metadata.deletion_timestamp is not None:
                self._world.leaving.add(uid)
        elif _mine(new):
            if uid not in self._binding:
                self._waiting[uid] = self._facts(new)
        else:
            self._waiting.pop(uid, None)
        self._wake()

    def _free(self, uid: str) -> None:
        """Give the room of a pod back; groups that are held may fit now."""
        if self._world.where(uid) is not None:
            self._world.remove(uid)
            self._touched |= self._held

    def _facts(self, pod: Pod) -> PodFacts:
        priority = pod.spec.priority
        if priority is None:
            found = self._shared.priority_classes.get("", pod.spec.priority_class_name)
            priority = found.value if found else 0
        return PodFacts.of(pod, priority)

    def _wake(self) -> None:
        if self._waiting or self._touched:
            self._controller.enqueue(EVERYTHING)

    async def _pass(self, _: str) -> Requeue | None:
        touched, self._touched = self._touched, set()
        touched |= {(facts.namespace, facts.group) for facts in self._waiting.values() if facts.group}
        gangs = {key: gang for key in touched if (gang := self._gang(key)) is not None}
        self._held -= touched
        self._held |= {key for key, gang in gangs.items() if not gang.queued}
        decision = decide(self._world, self._waiting.values(), gangs, self._gang)
        for facts, node in decision.bind:
            self._waiting.pop(facts.uid, None)
            self._binding.add(facts.uid)
            self._start(self._bind(facts, node))
        for victim in decision.victims:
            self._world.leaving.add(victim.facts.uid)
            self._start(self._evict(victim))
        for facts, message in decision.refused:
            node = decision.nominated.get(facts.uid, "")
            if facts.uid not in self._telling and not _says(facts.pod, message, node):
                self._telling.add(facts.uid)
                self._start(self._tell(facts.pod, message, node))
        for key, gang in gangs.items():
            self._start_group(key, gang, decision.gangs.get(key))
        return None

    def _gang(self, key: GroupKey) -> Gang | None:
        group = self._shared.groups.get(*key)
        if group is None:
            return None
        bound = Counter(
            pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")
            for pod in self._shared.pods.by("group", f"{key[0]}/{key[1]}")
            if self._holds_place(pod)
        )
        try:
            least = least_resources(group.spec.min_resources)
        except ValueError as error:
            # Nothing checks this field of a custom resource; one bad group must not stop the others.
            least = {}
            text = f"spec.minResources: {error}"
            if self._told.get(group.metadata.uid) != text:
                self._told[group.metadata.uid] = text
                self._shared.events.event(group, "Warning", "InvalidResources", text)
        started = group.status.phase in ("Inqueue", "Running", "Unknown", "Completed")
        queued = started or not least or queueable(self._world, least)
        return Gang(group.spec.min_member, group.spec.min_task_member, bound, queued)

    def _holds_place(self, pod: Pod) -> bool:
        if pod.status.phase == "Succeeded":
            return True
        if pod.finished or pod.metadata.deletion_timestamp is not None:
            return False
        return bool(pod.spec.node_name) or pod.metadata.uid in self._binding

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, facts: PodFacts, node: str) -> None:
        meta = facts.pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = Pod.resource.path(meta.name, meta.namespace, "binding")
        try:
            await self._insist(path, body)
        except ApiError as error:
            if not isinstance(error, NotFound | Conflict):
                log.warning("bind failed", pod=f"{meta.namespace}/{meta.name}", node=node, error=str(error))
            self._binding.discard(meta.uid)
            self._unplace(facts)
        else:
            message = f"Successfully assigned {meta.namespace}/{meta.name} to {node}"
            self._shared.events.event(facts.pod, "Normal", "Scheduled", message)

    async def _insist(self, path: str, body: Mapping[str, object]) -> None:
        """A write that may have been done is tried again: a second bind is refused and harms nothing."""
        for attempt in range(1, BIND_TRIES + 1):
            try:
                await self._shared.client.request("POST", path, body=body)
                return
            except (Unavailable, Throttled):
                if attempt == BIND_TRIES:
                    raise
                await asyncio.sleep(0.2 * attempt)

    def _unplace(self, facts: PodFacts) -> None:
        """Back to what the cache says of a pod whose bind was refused."""
        pod = self._shared.pods.get(facts.namespace, facts.pod.metadata.name)
        if pod is None or pod.metadata.uid != facts.uid or pod.spec.node_name:
            if pod is None or pod.metadata.uid != facts.uid:
                self._free(facts.uid)
                self._wake()
            return
        self._free(facts.uid)
        if _mine(pod):
            self._waiting[facts.uid] = facts
            self._controller.enqueue(EVERYTHING, 0.5)

    async def _evict(self, victim: Victim) -> None:
        """Delete a pod for one of higher priority, and say so on it first."""
        meta = victim.facts.pod.metadata
        name = victim.preemptor.pod.spec.scheduler_name
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": self._shared.clock.now().replace(microsecond=0),
        }
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._shared.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
            await self._shared.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return  # gone, and another of its name perhaps here: the watch tells
        except ApiError as error:
            log.warning("pod not preempted", pod=f"{meta.namespace}/{meta.name}", error=str(error))
            self._world.leaving.discard(meta.uid)
            self._controller.enqueue(EVERYTHING, 0.5)
        else:
            message = f"Preempted by pod {victim.preemptor.uid} on node {victim.node}"
            self._shared.events.event(victim.facts.pod, "Normal", "Preempted", message)

    async def _tell(self, pod: Pod, message: str, node: str) -> None:
        """Write why the pod waits; the pass that follows finds out whether that is still true.

        `node` is where it is to go when others have left, if that is why.
        """
        self._shared.events.event(pod, "Warning", "FailedScheduling", message)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": self._shared.clock.now().replace(microsecond=0),
        }
        meta = pod.metadata
        status = {"conditions": [condition], "nominatedNodeName": node or None}
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            written = await self._shared.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except ApiError as error:
            self._telling.discard(meta.uid)
            if not isinstance(error, NotFound | Conflict):
                log.warning("status not written", pod=f"{meta.namespace}/{meta.name}", error=str(error))
                self._controller.enqueue(EVERYTHING, 0.5)
        else:
            self._telling.discard(meta.uid)
            self._shared.pods.put(written)
            self._wake()

    def _start_group(self, key: GroupKey, gang: Gang, outcome: GangOutcome | None) -> None:
        group = self._shared.groups.get(*key)
        if group is None:
            return
        status = group_status(
            group,
            self._shared.pods.by("group", f"{key[0]}/{key[1]}"),
            outcome,
            queued=gang.queued,
            now=self._shared.clock.now().replace(microsecond=0),
            transition=str(uuid.uuid4()),
        )
        if status != group.status:
            self._start(self._write_group(group, status_patch(status)))

    async def _write_group(self, group: PodGroup, patch: dict[str, object]) -> None:
        meta = group.metadata
        try:
            written = await self._shared.client.patch(
                PodGroup,
                meta.name,
                {"metadata": {"resourceVersion": meta.resource_version}, **patch},
                meta.namespace,
                subresource="status",
            )
        except ApiError as error:
            if not isinstance(error, NotFound | Conflict):
                log.warning("group not written", group=f"{meta.namespace}/{meta.name}", error=str(error))
                self._touched.add((meta.namespace, meta.name))
                self._controller.enqueue(EVERYTHING, 1.0)
        else:
            self._shared.groups.put(written)


def _mine(pod: Pod) -> bool:
    return (
        pod.spec.scheduler_name in NAMES
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
    )


def _says(pod: Pod, message: str, node: str) -> bool:
    return pod.status.nominated_node_name == node and any(
        known.type == "PodScheduled" and (known.status, known.message) == ("False", message)
        for known in pod.status.conditions
    )
