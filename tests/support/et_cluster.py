"""An API server and nodes for the pods and children of one TrainingJob, driven by a test.

Pods start one tick after they were created and vanish one tick after they were deleted, unless a test holds
them. Objects are rejected as the real API server does it, and the answers are those of the real executor.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import ActionResult, ActionStatus, Apply, Remove
from argosy.plan.children import Child, KubernetesObject, Owner, child_body
from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.observed import ObservedPod, observe_pod
from argosy.workload.plan import DeletePod
from tests.support.workloads import NOW

Json = dict[str, object]
ChildKey = tuple[str, str]
"""Kind and name."""


class StoredChild(Struct, frozen=True):
    """A child that exists."""

    obj: KubernetesObject
    child: Child
    body: Json
    """The whole body, with labels and ownerReferences."""


class EtCluster:
    """The objects of one job, and what becomes of them."""

    def __init__(self) -> None:
        self.now: datetime = NOW
        self.pods: dict[str, ObservedPod] = {}
        self.rendered: dict[str, Json] = {}
        """The body of every pod that was created, by name; the latest one."""
        self.children: dict[ChildKey, StoredChild] = {}
        self.foreign: set[ChildKey] = set()
        """Objects of other owners."""
        self.forbidden: set[ChildKey] = set()
        """Children that the operator may not write."""
        self.pending: set[str] = set()
        """Names of pods that do not start."""
        self.stuck: set[str] = set()
        """Names of pods that do not terminate."""
        self.node_of: Callable[[str], str] = lambda name: "node-1"
        self.nodes_down: frozenset[str] = frozenset()
        self.announced: dict[str, Announcement] = {}
        """Announced ends of nodes, by name."""
        self.quota: Callable[[str], str] = lambda name: ""
        """Returns why the creation of a pod is forbidden; empty if it is not."""
        self.allow_late = False
        """Whether pods may be created that exist already."""
        self.created: list[str] = []
        self.deleted: list[DeletePod] = []
        self._uids = 0

    def tick(self, seconds: float) -> None:
        """Let time pass: pods start, and deleted pods vanish."""
        self.now += timedelta(seconds=seconds)
        self.pods = {
            name: pod for name, pod in self.pods.items() if not pod.terminating or name in self.stuck
        }
        for name, pod in self.pods.items():
            if pod.phase == "Pending" and name not in self.pending:
                self.pods[name] = replace(pod, phase="Running")

    def create_pod(self, name: str, body: Json) -> ActionResult:
        result = ActionResult("Pod", name)
        if message := self.quota(name):
            return replace(result, status=ActionStatus.FORBIDDEN, message=message)
        if ("Pod", name) in self.foreign:
            return _conflict(result)
        existing = self.pods.get(name)
        if existing is not None and not existing.terminating:
            assert self.allow_late, f"{name} exists"
            return result
        if existing is not None:
            return replace(result, status=ActionStatus.TERMINATING, message=f"{name} is being deleted")
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        whole = {**body, "metadata": {**metadata, "uid": self._uid(), "creationTimestamp": self.now}}
        pod = observe_pod(msgspec.convert(whole, Pod))
        assert pod is not None, "the labels name no replica"
        self.pods[name] = replace(pod, node=self.node_of(name))
        self.rendered[name] = body
        self.created.append(name)
        return result

    def delete_pod(self, action: DeletePod) -> ActionResult:
        pod = self.pods.get(action.name)
        if pod is not None and pod.uid == action.uid:
            self.deleted.append(action)
            self.delete(action.name)
        return ActionResult("Pod", action.name, verb="Delete", reason=action.reason)

    def apply(self, owner: Owner, action: Apply) -> ActionResult:
        child = action.child
        key = kind, name = child.kind.resource.kind, child.name
        result = ActionResult(kind, name)
        if key in self.foreign:
            return _conflict(result)
        if key in self.forbidden:
            return replace(result, status=ActionStatus.FORBIDDEN, message=f"{name} is forbidden")
        existing = self.children.get(key)
        if existing and child.generator:
            return result
        uid = existing.obj.metadata.uid if existing else self._uid()
        body = child_body(owner, child)
        metadata = msgspec.convert({**_mapping(body["metadata"]), "uid": uid}, ObjectMeta)
        obj = child.kind(metadata=metadata)  # type: ignore[call-arg]  # the protocol has no constructor
        self.children[key] = StoredChild(obj, child, body)
        return result

    def remove(self, action: Remove) -> ActionResult:
        key = kind, name = action.kind.resource.kind, action.name
        existing = self.children.get(key)
        if existing and existing.obj.metadata.uid == action.uid:
            del self.children[key]
        return ActionResult(kind, name, verb="Delete")

    # What users, programs and nodes do.

    def announce(self, node: str, seconds: float, cause: NoticeCause = NoticeCause.PREEMPTED) -> None:
        """Announce that a node ends in so many seconds."""
        deadline = self.now + timedelta(seconds=seconds)
        self.announced[node] = Announcement(node, f"uid-{node}", cause, "cloud", deadline)

    def disrupt(self, name: str) -> None:
        """Set the condition DisruptionTarget of a pod."""
        self.pods[name] = replace(self.pods[name], disrupted=True, disruption_reason="EvictionByEvictionAPI")

    def delete(self, *names: str) -> None:
        for name in names:
            self.pods[name] = replace(self.pods[name], terminating=True, deletion_time=self.now)

    def lose(self, *names: str) -> None:
        """Remove pods from the API at once."""
        for name in names:
            del self.pods[name]

    def succeed(self, name: str) -> None:
        self.pods[name] = replace(self.pods[name], phase="Succeeded", exit_code=0, first_exit_code=0)

    def fail(self, name: str, exit_code: int | None = 1, reason: str = "") -> None:
        """End a pod with this exit code of its first container, or with a reason of its own."""
        self.pods[name] = replace(
            self.pods[name],
            phase="Failed",
            exit_code=exit_code,
            first_exit_code=exit_code,
            reason=reason,
            disrupted=reason == "Evicted",
        )

    def change(self, name: str, **fields: object) -> None:
        self.pods[name] = replace(self.pods[name], **fields)

    # What tests ask for.

    def names(self, kind: str) -> list[str]:
        """Return the names of the children of one kind."""
        return sorted(name for child_kind, name in self.children if child_kind == kind)

    def spec(self, kind: str, name: str) -> Json:
        return _mapping(self.children[kind, name].body["spec"])

    def labels(self, kind: str, name: str) -> Json:
        metadata = _mapping(self.children[kind, name].body["metadata"])
        return _mapping(metadata["labels"])

    def workers(self) -> list[str]:
        """Return the names of the worker pods that are not being deleted, by index."""
        pods = [pod for pod in self.pods.values() if pod.role == "worker" and not pod.terminating]
        return [pod.name for pod in sorted(pods, key=lambda pod: pod.index)]

    def uids(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.pods[name].uid for name in names}

    def _uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"


def _conflict(result: ActionResult) -> ActionResult:
    message = f"{result.kind} {result.name} exists and does not belong to this job"
    return replace(result, status=ActionStatus.NAME_CONFLICT, message=message)


def _mapping(value: object) -> Json:
    assert isinstance(value, dict)
    return value
