"""Executes a job's actions, each in a way that is safe to repeat and to do late.

Pods are created by POST under their deterministic name and deleted by uid. If the name is taken, the existing
pod is the wanted one only if owner, attempt and replacement match and it is not terminating. An older pod of
the job is waited for; a pod of another owner is reported and left alone. Results other than DONE are input of
the next reconcile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, Protocol

from msgspec.structs import replace

from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Invalid,
    LeaseExpired,
    NotFound,
)
from argosy.engine.objects import ApiObject
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod, Secret, Service
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import ActionResult, ActionStatus, Apply, Remove
from argosy.plan.children import KubernetesObject
from argosy.reconcile import slow_start
from argosy.reconcile.action_batch import status_of_error
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.caches import LAUNCHER_KINDS
from argosy.reconcile.child_executor import ChildExecutor, Report, is_other_object
from argosy.reconcile.job_state import JobState
from argosy.reconcile.pod_renderer import UnrenderableError
from argosy.reconcile.rejections import SpecRejectedError, template_error
from argosy.reconcile.render import Json
from argosy.reconcile.render_context import Features
from argosy.reconcile.slow_start import PodCreations
from argosy.reconcile.sshkeys import GENERATORS
from argosy.workload import messages
from argosy.workload.children import job_owner
from argosy.workload.model import Workload
from argosy.workload.plan import (
    AwaitedAction,
    ConfirmPod,
    CreatePod,
    DeleteJob,
    DeletePod,
    PatchMetadata,
)

_LAUNCHER_KIND_NAMES = frozenset(kind.resource.kind for kind in LAUNCHER_KINDS)
JOB = "Job"
"""Kind under which the deletion of a job object is reported, whatever its API."""


class FeatureOffError(Exception):
    """A job needs a feature that the administrator has not turned on."""

    def __init__(self, feature: str, value: str) -> None:
        super().__init__(messages.feature_disabled(feature, value))


class ObjectSink(Protocol):
    """Takes objects that the API server returned, so that the next reconcile sees them before the watch does.

    For an object that was returned with metadata only, the watch brings the rest.
    """

    def put(self, obj: KubernetesObject, *, metadata_only: bool = False) -> None: ...


class ActionExecutor:
    """Executes the actions of one reconcile of one job."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        sink: ObjectSink,
        workload: Workload,
        job: type[ApiObject],
        state: JobState,
        render: Callable[[CreatePod, str], Json],
        name: Callable[[str, int, int, int], str],
        bodies: ByteBudget,
        features: Features = Features(),
    ) -> None:
        self.client = client
        self.clock = clock
        self.sink = sink
        self.workload = workload
        self.job = job
        self.retries = state.retries
        self.hints = state.hints
        self.render = render
        self.name = name
        self.bodies = bodies
        self.features = features
        self.results: list[ActionResult] = []
        """Objects that were created or deleted, and new rejections, in the order of the answers."""
        self.children = ChildExecutor(
            client,
            job_owner(workload),
            state.written,
            sink.put,
            GENERATORS,
            _report_to(self.results, workload),
        )

    async def execute(self, actions: Sequence[AwaitedAction]) -> Sequence[ActionResult]:
        """Execute children first, since pods refer to them, then pods, then deletions of other objects.

        Return what is worth an event: objects that were created or deleted, and rejections that are new.
        """
        if self.retries.failures:
            planned = (self._result(action) for action in actions)
            self.retries.keep_only({(result.kind, result.name) for result in planned})
        applies = [action for action in actions if isinstance(action, Apply)]
        for stage in sorted({action.child.stage for action in applies}):
            if not await self._gather(
                self._apply(action) for action in applies if action.child.stage == stage
            ):
                return self.results
        deletions = [self._delete_pod(action) for action in actions if isinstance(action, DeletePod)]
        confirmations = [self._confirm_pod(action) for action in actions if isinstance(action, ConfirmPod)]
        await self._gather([self._create_pods(actions), *deletions, *confirmations])
        await self._gather(self._patch(action) for action in actions if isinstance(action, PatchMetadata))
        await self._gather(self._remove(action) for action in actions if isinstance(action, Remove))
        for action in actions:
            if isinstance(action, DeleteJob):
                await self._delete_job(action)
        return self.results

    async def _gather(self, steps: Iterable[Awaitable[bool]]) -> bool:
        """Return True if all were done. Only the loss of the lease is raised: it ends the reconcile."""
        results = await asyncio.gather(*steps, return_exceptions=True)
        failed = next((result for result in results if isinstance(result, BaseException)), None)
        try:
            if failed is not None:
                raise failed
            return all(results)
        finally:
            del failed, results  # the error refers to this frame: without this they would be a cycle

    def _result(self, action: AwaitedAction) -> ActionResult:
        """Return the result of an action that was done."""
        match action:
            case CreatePod(role, index, attempt, replacement):
                name = self.name(role, index, attempt, replacement)
                return ActionResult(Pod.resource.kind, name, role=role, index=index)
            case ConfirmPod(role, index, attempt, replacement):
                name = self.name(role, index, attempt, replacement)
                return ActionResult(Pod.resource.kind, name, verb="Get")
            case DeletePod():
                return ActionResult(Pod.resource.kind, action.name, verb="Delete", reason=action.reason)
            case Apply(child):
                kind = child.kind.resource.kind
                return ActionResult(kind, child.name, role=_role_of(self.workload, kind, child.name))
            case Remove():
                return ActionResult(action.kind.resource.kind, action.name, verb="Delete")
            case PatchMetadata():
                return ActionResult(action.kind.resource.kind, action.name, verb="Patch")
            case DeleteJob(reason):
                return ActionResult(JOB, self.workload.name, verb="Delete", reason=reason)

    async def _apply(self, action: Apply) -> bool:
        async def apply() -> ActionStatus:
            self._check_feature(action.child.kind.resource.kind)
            return await self.children.execute(action)

        return await self._try(self._result(action), apply)

    async def _remove(self, action: Remove) -> bool:
        return await self._try(self._result(action), lambda: self.children.execute(action))

    def _check_feature(self, kind: str) -> None:
        """Raise if a child of this kind belongs to a feature that is off: RBAC does not allow it then."""
        if kind == Secret.resource.kind and not self.features.ssh_keys:
            raise FeatureOffError("ssh keys", "sshKeys")
        if kind in _LAUNCHER_KIND_NAMES and not self.features.remote_exec:
            raise FeatureOffError("launchers that start processes in other pods", "remoteExec")

    async def _create_pods(self, actions: Sequence[AwaitedAction]) -> bool:
        slow_start, failures = self.retries.slow_start, self.retries.failures.values()
        failed = {
            (failure.role, failure.index) for failure in failures if failure.status is ActionStatus.RETRY
        }
        creations = slow_start.in_order(
            (action for action in actions if isinstance(action, CreatePod)), failed
        )
        return await PodCreations(slow_start, self.clock, self._create_pod).run(creations)

    async def _create_pod(self, action: CreatePod) -> ActionStatus | None:
        result = self._result(action)
        size = self.workload.roles[action.role].pod_bytes
        async with self.bodies.hold(self.workload.namespace, size):
            return await self._attempt(result, lambda: self._post_pod(action, result))

    async def _post_pod(self, action: CreatePod, result: ActionResult) -> ActionStatus:
        name, namespace = result.name, self.workload.namespace
        body = self.render(action, name)
        try:
            created = await self.client.create(Pod, body, namespace, strict=True, metadata_only=True)
            self.sink.put(created, metadata_only=True)
            self.results.append(result)
            return ActionStatus.DONE
        except AlreadyExists:
            existing = await self.client.get(Pod, name, namespace)
        except (Invalid, BadRequest) as error:
            template = self.workload.roles[action.role].template
            path = f"{self.workload.semantics.roles_path}.{action.role}.template"
            if message := template_error(error, template, body, path):
                raise SpecRejectedError(message) from error
            raise
        return self._take_existing(action, existing)

    def _take_existing(self, action: CreatePod, existing: Pod) -> ActionStatus:
        """Return what it means that this pod has the name of the pod to create."""
        meta = existing.metadata
        terminating = meta.deletion_timestamp is not None
        if _owner(meta) != self.workload.uid:
            return ActionStatus.TERMINATING if terminating else ActionStatus.NAME_CONFLICT
        self.sink.put(existing)
        version = (meta.labels.get(labels.ATTEMPT), meta.labels.get(labels.REPLACEMENT))
        if terminating or version != (str(action.attempt), str(action.replacement)):
            return ActionStatus.TERMINATING
        return ActionStatus.DONE

    async def _delete_pod(self, action: DeletePod) -> bool:
        result = self._result(action)

        async def delete() -> ActionStatus:
            try:
                await self.client.delete(
                    Pod,
                    action.name,
                    self.workload.namespace,
                    uid=action.uid,
                    resource_version=action.resource_version or None,
                    grace_seconds=action.grace_period_seconds,
                )
                self.results.append(result)
            except NotFound:
                pass
            except Conflict:
                if await self._exists(action):
                    raise  # it has changed since it was observed: the next reconcile decides again
            self.hints.deleted_uids.add(action.uid)
            return ActionStatus.DONE

        return await self._try(result, delete)

    async def _exists(self, action: DeletePod) -> bool:
        try:
            existing = await self.client.get(Pod, action.name, self.workload.namespace)
        except NotFound:
            return False
        self.sink.put(existing)
        return existing.metadata.uid == action.uid

    async def _confirm_pod(self, action: ConfirmPod) -> bool:
        result = self._result(action)

        async def confirm() -> ActionStatus:
            try:
                self.sink.put(await self.client.get(Pod, result.name, self.workload.namespace))
            except NotFound:
                self.hints.confirmed_absent.add((action.role, action.index))
            return ActionStatus.DONE

        return await self._try(result, confirm)

    async def _patch(self, action: PatchMetadata) -> bool:
        async def patch() -> ActionStatus:
            metadata = {"uid": action.uid, "labels": action.labels, "annotations": action.annotations}
            try:
                patched = await self.client.patch(
                    action.kind, action.name, {"metadata": metadata}, self.workload.namespace
                )
                self.sink.put(patched)
            except (NotFound, Conflict, Invalid) as error:
                if not is_other_object(error):
                    raise
            return ActionStatus.DONE

        return await self._try(self._result(action), patch)

    async def _delete_job(self, action: DeleteJob) -> bool:
        workload, result = self.workload, self._result(action)

        async def delete() -> ActionStatus:
            try:
                await self.client.delete(
                    self.job, workload.name, workload.namespace, uid=workload.uid, propagation="Background"
                )
                self.results.append(result)
            except (NotFound, Conflict):
                pass
            return ActionStatus.DONE

        return await self._try(result, delete)

    async def _try(self, result: ActionResult, step: Callable[[], Awaitable[ActionStatus]]) -> bool:
        """Return True if it was done."""
        return await self._attempt(result, step) is ActionStatus.DONE

    async def _attempt(
        self, result: ActionResult, step: Callable[[], Awaitable[ActionStatus]]
    ) -> ActionStatus | None:
        """Execute one action and return its status; None while it is in backoff.

        Any status but DONE is remembered. A rejected pod is held back by the slow start of its job, not by a
        backoff of its own: once one pod is accepted, all are tried again.
        """
        kind, name = result.kind, result.name
        if self.retries.in_backoff(kind, name, self.clock.monotonic()):
            return None
        try:
            status, message = await step(), ""
        except LeaseExpired:
            raise
        except ApiError as error:
            status, message = status_of_error(error), error.message or error.reason
        except UnrenderableError as error:
            status, message = ActionStatus.INVALID, str(error)
        except FeatureOffError as error:
            status, message = ActionStatus.FORBIDDEN, str(error)
        except SpecRejectedError as error:
            status, message = ActionStatus.SPEC_REJECTED, str(error)
        if status is ActionStatus.DONE:
            self.retries.clear_failure(kind, name)
            return status
        message = truncate(message or _MESSAGES[status].format(kind=kind, name=name), MAX_MESSAGE_CHARS)
        failure = replace(result, status=status, message=message)
        if status in _REJECTIONS and self.retries.failures.get((kind, name)) != failure:
            self.results.append(failure)
        by_slow_start = result.index is not None and status in slow_start.REJECTIONS
        self.retries.record_failure(failure, self.clock.monotonic(), backoff=not by_slow_start)
        return status


def _report_to(results: list[ActionResult], workload: Workload) -> Report:
    """Return a function that adds children to the results. It must not refer to the executor, whose part it
    is: that would be a cycle."""

    def report(verb: Literal["Create", "Delete"], kind: type[KubernetesObject], name: str) -> None:
        role = _role_of(workload, kind.resource.kind, name) if verb == "Create" else ""
        results.append(ActionResult(kind.resource.kind, name, verb=verb, role=role))

    return report


def _role_of(workload: Workload, kind: str, name: str) -> str:
    """Return the role that a Service belongs to; other children belong to the whole job."""
    if kind != Service.resource.kind:
        return ""
    return next((role for role in workload.rules.services if workload.service(role) == name), "")


_REJECTIONS = frozenset(
    {ActionStatus.FORBIDDEN, ActionStatus.RETRY, ActionStatus.INVALID, ActionStatus.SPEC_REJECTED}
)
"""Statuses that are reported with the message of the API server. A name that is taken is reported as the
reason why the job waits."""
_MESSAGES = {
    ActionStatus.NAME_CONFLICT: "{kind} {name} exists and does not belong to this job",
    ActionStatus.TERMINATING: "an earlier {kind} {name} is still being deleted",
    ActionStatus.RETRY: "{kind} {name} has changed since it was observed",
}


def _owner(metadata: ObjectMeta) -> str:
    controller = metadata.controller
    return controller.uid if controller else ""
