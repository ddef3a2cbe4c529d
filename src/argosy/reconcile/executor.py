"""Carries out a plan's actions, each in the way that is safe to repeat and to do late.

Pods are made by POST under their deterministic name and deleted by uid. A name that is taken is looked at:
the pod is ours only if owner, attempt and replacement are those we meant and it is not on its way out; an
older one is waited for; somebody else's is told about and left alone. What the API answers becomes input of
the next pass.
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
    Forbidden,
    Invalid,
    LeaseExpired,
    NotFound,
    TooLarge,
)
from argosy.engine.objects import ApiObject
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod, Secret, Service
from argosy.kinds.messages import MAX_MESSAGE_CHARS, truncate
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import ActionStatus, Apply, Remove
from argosy.plan.children import KubernetesObject
from argosy.reconcile import slow_start
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
from argosy.workload.children import job_owner
from argosy.workload.model import Workload
from argosy.workload.observed import Outcome
from argosy.workload.plan import (
    Action,
    ConfirmPod,
    CreatePod,
    Deed,
    DeleteJob,
    DeletePod,
    PatchMetadata,
)

_LAUNCHER_KIND_NAMES = frozenset(kind.resource.kind for kind in LAUNCHER_KINDS)
JOB = "Job"
"""Under which deletions of the job object itself are told, of whatever kind it is."""


class FeatureOffError(Exception):
    """A job needs what the administrator has not turned on."""

    def __init__(self, what: str, value: str) -> None:
        super().__init__(
            f"{what} are off in this installation; the administrator turns them on by the chart's value"
            f" features.{value}=true"
        )


class ObjectSink(Protocol):
    """Where objects go that the API returned, so that the next pass sees them whatever the watch has
    brought. Of one that was returned in brief the watch brings the rest."""

    def put(self, obj: KubernetesObject, *, metadata_only: bool = False) -> None: ...


class ActionExecutor:
    """Performs for one pass of one job."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        seen: ObjectSink,
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
        self.sink = seen
        self.workload = workload
        self.job = job
        self.retries = state.retries
        self.hints = state.hints
        self.render = render
        self.name = name
        self.bodies = bodies
        self.features = features
        self.deeds: list[Deed] = []
        self.children = ChildExecutor(
            client, job_owner(workload), state.written, seen.put, GENERATORS, _report_to(self.deeds, workload)
        )

    async def execute(self, actions: Sequence[Action]) -> Sequence[Deed]:
        """Children first, since pods refer to them; then pods; then what goes away for good. What became of
        each, as far as it is worth telling."""
        applies = [action for action in actions if isinstance(action, Apply)]
        for stage in sorted({action.child.stage for action in applies}):
            if not await self._gather(self._apply(one) for one in applies if one.child.stage == stage):
                return self.deeds
        others = [self._pod(one) for one in actions if isinstance(one, DeletePod | ConfirmPod)]
        await self._gather([self._create_pods(actions), *others])
        await self._gather(self._remark(one) for one in actions if isinstance(one, PatchMetadata))
        await self._gather(self._remove(one) for one in actions if isinstance(one, Remove))
        for one in actions:
            if isinstance(one, DeleteJob):
                await self._delete_job(one)
        return self.deeds

    async def _gather(self, steps: Iterable[Awaitable[bool]]) -> bool:
        """True if each was done. A lost lease ends the whole pass; anything else concerns one action only."""
        results = await asyncio.gather(*steps, return_exceptions=True)
        failed = next((one for one in results if isinstance(one, BaseException)), None)
        try:
            if failed is not None:
                raise failed
            return all(results)
        finally:
            del failed, results  # an error holds this frame: it must not hold the error

    async def _apply(self, action: Apply) -> bool:
        kind, name = action.child.kind.resource.kind, action.child.name

        async def apply() -> ActionStatus:
            self._check_feature(kind)
            return await self.children.execute(action)

        return await self._try(Deed("Create", kind, name, _role_of(self.workload, kind, name)), apply)

    async def _remove(self, action: Remove) -> bool:
        deed = Deed("Delete", action.kind.resource.kind, action.name)
        return await self._try(deed, lambda: self.children.execute(action))

    def _check_feature(self, kind: str) -> None:
        """Raise if a child of this kind belongs to a feature that is off: its rights are not given then."""
        if kind == Secret.resource.kind and not self.features.ssh_keys:
            raise FeatureOffError("keys for ssh", "sshKeys")
        if kind in _LAUNCHER_KIND_NAMES and not self.features.remote_exec:
            raise FeatureOffError("launchers that start processes in other pods", "remoteExec")

    async def _create_pods(self, actions: Sequence[Action]) -> bool:
        slow_start, outcomes = self.retries.slow_start, self.retries.outcomes.values()
        failed = {(one.role, one.index) for one in outcomes if one.status is ActionStatus.RETRY}
        creations = slow_start.in_order((one for one in actions if isinstance(one, CreatePod)), failed)
        return await PodCreations(slow_start, self.clock, self._create_pod).run(creations)

    async def _create_pod(self, action: CreatePod) -> ActionStatus | None:
        name = self.name(action.role, action.index, action.attempt, action.replacement)
        deed = Deed("Create", Pod.resource.kind, name, action.role)
        size = self.workload.roles[action.role].pod_bytes
        async with self.bodies.hold(self.workload.namespace, size):
            return await self._attempt(deed, lambda: self._post_pod(action, deed), action.index)

    async def _pod(self, action: DeletePod | ConfirmPod) -> bool:
        match action:
            case DeletePod():
                deed = Deed("Delete", Pod.resource.kind, action.name, why=action.reason)
                return await self._try(deed, lambda: self._delete_pod(action, deed))
            case ConfirmPod():
                name = self.name(action.role, action.index, action.attempt, action.replacement)
                return await self._try(
                    Deed("Create", Pod.resource.kind, name), lambda: self._confirm_pod(action, name)
                )

    async def _post_pod(self, action: CreatePod, deed: Deed) -> ActionStatus:
        name, namespace = deed.name, self.workload.namespace
        body = self.render(action, name)
        try:
            made = await self.client.create(Pod, body, namespace, strict=True, metadata_only=True)
            self.sink.put(made, metadata_only=True)
            self.deeds.append(deed)
            return ActionStatus.DONE
        except AlreadyExists:
            existing = await self.client.get(Pod, name, namespace)
        except (Invalid, BadRequest) as error:
            template = self.workload.roles[action.role].template
            if said := template_error(
                error, template, body, f"{self.workload.semantics.roles_path}.{action.role}.template"
            ):
                raise SpecRejectedError(said) from error
            raise
        leaving = existing.metadata.deletion_timestamp is not None
        if _owner(existing.metadata) != self.workload.uid:
            return ActionStatus.TERMINATING if leaving else ActionStatus.NAME_CONFLICT
        self.sink.put(existing)
        written = existing.metadata.labels
        meant = (str(action.attempt), str(action.replacement))
        if leaving or (written.get(labels.ATTEMPT), written.get(labels.REPLACEMENT)) != meant:
            return ActionStatus.TERMINATING
        return ActionStatus.DONE

    async def _delete_pod(self, action: DeletePod, deed: Deed) -> ActionStatus:
        try:
            await self.client.delete(
                Pod,
                action.name,
                self.workload.namespace,
                uid=action.uid,
                resource_version=action.resource_version or None,
                grace_seconds=action.grace_period_seconds,
            )
            self.deeds.append(deed)
        except NotFound:
            pass
        except Conflict:
            if await self._is_there(action):
                raise  # it is another than it was seen to be: the next pass judges it anew
        self.hints.deleted_uids.add(action.uid)
        return ActionStatus.DONE

    async def _is_there(self, action: DeletePod) -> bool:
        try:
            existing = await self.client.get(Pod, action.name, self.workload.namespace)
        except NotFound:
            return False
        self.sink.put(existing)
        return existing.metadata.uid == action.uid

    async def _confirm_pod(self, action: ConfirmPod, name: str) -> ActionStatus:
        try:
            self.sink.put(await self.client.get(Pod, name, self.workload.namespace))
        except NotFound:
            self.hints.confirmed_absent.add((action.role, action.index))
        return ActionStatus.DONE

    async def _remark(self, action: PatchMetadata) -> bool:
        async def remark() -> ActionStatus:
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

        return await self._try(Deed("Mark", action.kind.resource.kind, action.name), remark)

    async def _delete_job(self, action: DeleteJob) -> bool:
        workload = self.workload
        deed = Deed("Delete", JOB, workload.name, why=action.reason)

        async def delete() -> ActionStatus:
            try:
                await self.client.delete(
                    self.job, workload.name, workload.namespace, uid=workload.uid, propagation="Background"
                )
                self.deeds.append(deed)
            except (NotFound, Conflict):
                pass
            return ActionStatus.DONE

        return await self._try(deed, delete)

    async def _try(self, deed: Deed, step: Callable[[], Awaitable[ActionStatus]]) -> bool:
        """Return True if it was done."""
        return await self._attempt(deed, step) is ActionStatus.DONE

    async def _attempt(
        self, deed: Deed, step: Callable[[], Awaitable[ActionStatus]], index: int | None = None
    ) -> ActionStatus | None:
        """Do it and return the answer, or None where an earlier answer says to wait.

        Any answer that is not success is remembered. A refused pod (`index` is set) is held back by the slow
        start of its job and not for itself: once one pod is let in, all are tried again.
        """
        kind, name = deed.kind, deed.name
        if self.retries.in_backoff(kind, name, self.clock.monotonic()):
            return None
        try:
            result, message = await step(), ""
        except LeaseExpired:
            raise
        except ApiError as error:
            result, message = _result(error), error.message or error.reason
        except UnrenderableError as error:
            result, message = ActionStatus.INVALID, str(error)
        except FeatureOffError as error:
            result, message = ActionStatus.FORBIDDEN, str(error)
        except SpecRejectedError as error:
            result, message = ActionStatus.SPEC_REJECTED, str(error)
        if result is ActionStatus.DONE:
            self.retries.clear_failure(kind, name)
            return result
        message = truncate(message or _WHY[result].format(kind=kind, name=name), MAX_MESSAGE_CHARS)
        outcome = Outcome(kind, name, result, message, deed.role, index)
        if result in _REFUSALS and self.retries.outcomes.get((kind, name)) != outcome:
            self.deeds.append(replace(deed, refused=message))
        by_job = index is not None and result in slow_start.REJECTIONS
        self.retries.record_failure(outcome, self.clock.monotonic(), backoff=not by_job)
        return result


def _report_to(deeds: list[Deed], workload: Workload) -> Report:
    """Return a function that notes children. It must not hold the executor: that would be a cycle."""

    def report(verb: Literal["Create", "Delete"], kind: type[KubernetesObject], name: str) -> None:
        role = _role_of(workload, kind.resource.kind, name) if verb == "Create" else ""
        deeds.append(Deed(verb, kind.resource.kind, name, role))

    return report


def _role_of(workload: Workload, kind: str, name: str) -> str:
    """Return the role that a Service belongs to; other children belong to the whole job."""
    if kind != Service.resource.kind:
        return ""
    return next((role for role in workload.rules.services if workload.service(role) == name), "")


_REFUSALS = frozenset(
    {ActionStatus.FORBIDDEN, ActionStatus.RETRY, ActionStatus.INVALID, ActionStatus.SPEC_REJECTED}
)
"""Answers of the API that are told as such; of a name that is taken other things are told."""
_WHY = {
    ActionStatus.NAME_CONFLICT: "{kind} {name} exists and does not belong to this job",
    ActionStatus.TERMINATING: "an earlier {kind} {name} is still being deleted",
    ActionStatus.RETRY: "{kind} {name} has changed since it was observed",
}


def _result(error: ApiError) -> ActionStatus:
    if isinstance(error, Invalid | BadRequest | TooLarge):
        return ActionStatus.INVALID
    if isinstance(error, Forbidden | NotFound):
        return ActionStatus.FORBIDDEN
    return ActionStatus.RETRY


def _owner(metadata: ObjectMeta) -> str:
    controller = metadata.controller
    return controller.uid if controller else ""
