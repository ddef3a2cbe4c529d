"""Carries out a plan's actions, each in the way that is safe to repeat and to do late.

Pods are made by POST under their deterministic name and deleted by uid. A name that is taken is looked at:
the pod is ours only if owner, attempt and replacement are those we meant and it is not on its way out; an
older one is waited for; somebody else's is told about and left alone. What the API answers becomes input of
the next pass.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

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
from argosy.kinds.kubernetes import Pod, Role, RoleBinding, Secret, SecretMetadata, Service, ServiceAccount
from argosy.kinds.messages import MAX_MESSAGE_CHARS, truncate
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import ActionStatus
from argosy.reconcile import slow_start
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.child_bodies import CHILD_KINDS, ensured_body, keys_body, service_body, update_patch
from argosy.reconcile.job_state import JobState
from argosy.reconcile.pod_renderer import UnrenderableError
from argosy.reconcile.rejections import SpecRejectedError, template_error
from argosy.reconcile.render import Json
from argosy.reconcile.render_context import Features
from argosy.reconcile.slow_start import PodCreations
from argosy.workload.model import Workload
from argosy.workload.observed import Outcome
from argosy.workload.plan import (
    Action,
    ConfirmPod,
    CreatePod,
    Deed,
    DeleteChild,
    DeleteJob,
    DeletePod,
    EnsureChild,
    EnsureService,
    EnsureSshSecret,
    PatchMetadata,
)

BINDING = RoleBinding.resource.kind
LAUNCHER_KINDS = frozenset(kind.resource.kind for kind in (ServiceAccount, Role, RoleBinding))
Ensure = EnsureService | EnsureChild | EnsureSshSecret
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

    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None: ...


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

    async def execute(self, actions: Sequence[Action]) -> Sequence[Deed]:
        """Children first, since pods refer to them; then pods; then what goes away for good. What became of
        each, as far as it is worth telling."""
        ensures = [one for one in actions if isinstance(one, Ensure)]
        # Who may not bind just any role may bind only one that is there.
        last = [one for one in ensures if isinstance(one, EnsureChild) and one.kind == BINDING]
        for step in ([one for one in ensures if one not in last], last):
            if not await self._gather(self._ensure(one) for one in step):
                return self.deeds
        others = [self._pod(one) for one in actions if isinstance(one, DeletePod | ConfirmPod)]
        await self._gather([self._create_pods(actions), *others])
        await self._gather(self._remark(one) for one in actions if isinstance(one, PatchMetadata))
        await self._gather(self._delete_child(one) for one in actions if isinstance(one, DeleteChild))
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

    async def _ensure(self, action: Ensure) -> bool:
        workload = self.workload
        role = ""
        match action:
            case EnsureService():
                kind_name, body, role = Service.resource.kind, service_body(workload, action), action.role
            case EnsureChild():
                kind_name, body = action.kind, ensured_body(workload, action)
            case EnsureSshSecret():
                deed = Deed("Create", Secret.resource.kind, action.name)
                return await self._try(deed, lambda: self._create_keys(action, deed))
        deed = Deed("Create", kind_name, action.name, role)
        return await self._try(deed, lambda: self._create_or_update(deed, body))

    def _check_feature(self, kind: str) -> None:
        """Raise if a child of this kind belongs to a feature that is off: its rights are not given then."""
        if kind == Secret.resource.kind and not self.features.ssh_keys:
            raise FeatureOffError("keys for ssh", "sshKeys")
        if kind in LAUNCHER_KINDS and not self.features.remote_exec:
            raise FeatureOffError("launchers that start processes in other pods", "remoteExec")

    async def _create_or_update(self, deed: Deed, body: Json) -> ActionStatus:
        self._check_feature(deed.kind)
        kind, name, namespace = CHILD_KINDS[deed.kind], deed.name, self.workload.namespace
        try:
            self.sink.put(await self.client.create(kind, body, namespace))
            self.deeds.append(deed)
        except AlreadyExists:
            existing = await self.client.get(kind, name, namespace)
            self.sink.put(existing)
            if (found := self._existing_child(existing.metadata)) is not ActionStatus.DONE:
                return found
            # Metadata is merged: labels and annotations that others put there stay.
            guard = {"uid": existing.metadata.uid, "resourceVersion": existing.metadata.resource_version}
            patch = update_patch(existing.metadata, body)
            patch["metadata"] = {**_mapping(patch["metadata"]), **guard}
            self.sink.put(await self.client.patch(kind, name, patch, namespace))
        return ActionStatus.DONE

    async def _create_keys(self, action: EnsureSshSecret, deed: Deed) -> ActionStatus:
        self._check_feature(deed.kind)
        namespace = self.workload.namespace
        try:
            await self.client.create(Secret, keys_body(self.workload, action), namespace)
            self.deeds.append(deed)
        except AlreadyExists:
            # Whose it is says its metadata; what is in it is not read.
            return self._existing_child(
                (await self.client.get(SecretMetadata, action.name, namespace)).metadata
            )
        return ActionStatus.DONE

    def _existing_child(self, metadata: ObjectMeta) -> ActionStatus:
        """What comes of finding this under the name of a child: done if it is the job's and stays."""
        if metadata.deletion_timestamp is not None:
            return ActionStatus.TERMINATING
        return ActionStatus.DONE if _owner(metadata) == self.workload.uid else ActionStatus.NAME_CONFLICT

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
                error, template, body, f"{self.workload.roles_path}.{action.role}.template"
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
            kind = Pod if action.kind == Pod.resource.kind else CHILD_KINDS[action.kind]
            metadata = {"uid": action.uid, "labels": action.labels, "annotations": action.annotations}
            try:
                patched = await self.client.patch(
                    kind, action.name, {"metadata": metadata}, self.workload.namespace
                )
                self.sink.put(patched)
            except (NotFound, Conflict):
                pass  # it is gone, or another has its name
            return ActionStatus.DONE

        return await self._try(Deed("Mark", action.kind, action.name), remark)

    async def _delete_child(self, action: DeleteChild) -> bool:
        deed = Deed("Delete", action.kind, action.name)

        async def delete() -> ActionStatus:
            kind, namespace = CHILD_KINDS[action.kind], self.workload.namespace
            try:
                existing = await self.client.get(kind, action.name, namespace)
                if _owner(existing.metadata) == self.workload.uid:
                    await self.client.delete(kind, action.name, namespace, uid=existing.metadata.uid)
                    self.deeds.append(deed)
            except (NotFound, Conflict):
                pass
            return ActionStatus.DONE

        return await self._try(deed, delete)

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


_REFUSALS = frozenset(
    {ActionStatus.FORBIDDEN, ActionStatus.RETRY, ActionStatus.INVALID, ActionStatus.SPEC_REJECTED}
)
"""Answers of the API that are told as such; of a name that is taken other things are told."""
_WHY = {
    ActionStatus.NAME_CONFLICT: "{kind} {name} exists and does not belong to this job",
    ActionStatus.TERMINATING: "an earlier {kind} {name} is still being deleted",
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


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
