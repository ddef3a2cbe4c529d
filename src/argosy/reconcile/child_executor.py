"""Writes the children of one owner: created by POST, then changed by server-side apply or a merge patch.

A POST never replaces anything. A name that is taken belongs to us only if the object names our owner in the
owner's namespace; otherwise it is left alone. Every later write carries the uid of the object that it is
meant for, so that it cannot change another one that has taken the name meanwhile.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from argosy.engine.managed_fields import claim_created_fields
from argosy.kinds import labels
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import ActionStatus, Apply, AwaitedAction, Check, Patch, Remove
from argosy.plan.children import (
    Child,
    Json,
    KubernetesObject,
    Owner,
    child_body,
    child_labels,
    child_patch,
    fields_of,
    version_of,
)

Generator = Callable[[], Json]
"""Returns random content for a child that is created now, to be merged into its body."""


Report = Callable[[Literal["Create", "Delete"], type[KubernetesObject], str], None]
"""Called for each child that was created or deleted, with its kind and name."""


def _ignore(verb: Literal["Create", "Delete"], kind: type[KubernetesObject], name: str) -> None:
    del verb, kind, name


class WrittenChildren(Struct):
    """What is remembered of our writes to the children of one owner, by uid.

    Lost with the process, which costs one more write of each child.
    """

    versions: dict[str, str] = field(default_factory=dict)
    """What the last write returned; see `plan.children.version_of`."""
    applied: set[str] = field(default_factory=set)
    """Children that were last written by server-side apply."""
    fields: dict[str, frozenset[str]] = field(default_factory=dict)
    """The fields of each child that may be merged, as this process wrote it last: no others are to remove."""
    removed: set[str] = field(default_factory=set)
    """Children that were deleted, and that the caches may still show."""
    generated: set[str] = field(default_factory=set)
    """Names of children with random content that were there. We may not be allowed to watch them."""

    def keep_only(self, uids: set[str]) -> None:
        """Forget all children but these."""
        self.versions = {uid: version for uid, version in self.versions.items() if uid in uids}
        self.applied &= uids
        self.removed &= uids
        self.fields = {uid: fields for uid, fields in self.fields.items() if uid in uids}


class ChildExecutor:
    """Executes actions for one owner. Errors that say nothing about the owner of an object are raised."""

    def __init__(
        self,
        client: Client,
        owner: Owner,
        written: WrittenChildren,
        put: Callable[[KubernetesObject], None],
        generators: Mapping[str, Generator],
        report: Report = _ignore,
    ) -> None:
        self._client = client
        self._owner = owner
        self._written = written
        self._put = put
        """Takes objects that the API returned, so that the next reconcile sees them before the watch does."""
        self._generators = generators
        self._report = report

    async def execute(self, action: AwaitedAction) -> ActionStatus:
        match action:
            case Apply(child, ""):
                return await self._create(child)
            case Apply(child, uid):
                return await self._apply(child, uid)
            case Check(child):
                return await self._check(child)
            case Remove():
                return await self._remove(action)
            case Patch():
                return await self._patch(action)

    async def _create(self, child: Child) -> ActionStatus:
        if child.generator and child.name in self._written.generated:
            try:
                return await self._take_existing(child)
            except NotFound:
                self._written.generated.discard(child.name)
        body = child_body(self._owner, child)
        if child.generator:
            body = {**body, **self._generators[child.generator]()}
        try:
            created = await self._client.create(child.kind, body, self._owner.namespace)
        except AlreadyExists:
            return await self._take_existing(child)
        self._report("Create", child.kind, child.name)
        self._remember(child)
        self._note(created, child, body)
        return ActionStatus.DONE

    async def _check(self, child: Child) -> ActionStatus:
        body = child_body(self._owner, child)
        try:
            await self._client.create(child.kind, body, self._owner.namespace, dry_run=True)
        except AlreadyExists:
            pass  # found out after everything else was checked
        return ActionStatus.DONE

    async def _take_existing(self, child: Child) -> ActionStatus:
        """Bring the object that has the child's name up to date, if it is ours."""
        existing = await self._client.get(child.kind, child.name, self._owner.namespace)
        meta = existing.metadata
        status = self._status_of(meta)
        if status is not ActionStatus.DONE:
            return status
        if meta.labels.get(labels.UID) == self._owner.uid and (
            child.generator or meta.annotations.get(labels.DIGEST) == child.digest
        ):
            self._remember(child)
            self._put(existing)
            return ActionStatus.DONE
        if child.generator:
            return await self._relabel(child, meta)
        return await self._apply(child, meta.uid)

    async def _relabel(self, child: Child, meta: ObjectMeta) -> ActionStatus:
        """Put our labels back on a child whose content must not change.

        Where we may not, as with the Secrets of jobs, nobody finds it by its labels either.
        """
        metadata = {"uid": meta.uid, "labels": child_labels(self._owner, child)}
        try:
            patch = {"metadata": metadata}
            patched = await self._client.patch(child.kind, child.name, patch, self._owner.namespace)
            self._note(patched, child, child.body)
        except Forbidden:
            pass
        return ActionStatus.DONE

    async def _apply(self, child: Child, uid: str) -> ActionStatus:
        namespace, written = self._owner.namespace, self._written
        body = child_body(self._owner, child)
        try:
            if child.merge and written.fields.get(uid) == fields_of(body):
                patch = child_patch(self._owner, child, uid)
                current = await self._client.patch(child.kind, child.name, patch, namespace)
                written.applied.discard(uid)
            else:
                if uid not in written.applied:
                    await claim_created_fields(
                        self._client, child.kind, child.name, namespace, uid, patched=child.merge
                    )
                whole = child_body(self._owner, child, uid)
                current = await self._client.apply(child.kind, whole, namespace, force=True)
                written.applied.add(uid)
        except (Conflict, Invalid, NotFound) as error:
            if not is_other_object(error):
                raise
            return await self._look_again(child)
        self._note(current, child, body)
        return ActionStatus.DONE

    async def _look_again(self, child: Child) -> ActionStatus:
        """Return the result by the object that has the child's name, which is not the one in the cache."""
        try:
            existing = await self._client.get(child.kind, child.name, self._owner.namespace)
        except NotFound:
            return ActionStatus.RETRY
        status = self._status_of(existing.metadata)
        if status is not ActionStatus.DONE:
            return status
        self._put(existing)
        return ActionStatus.RETRY

    async def _remove(self, action: Remove) -> ActionStatus:
        if action.uid in self._written.removed:
            return ActionStatus.DONE
        try:
            # Without a policy the pods of a Job would be left behind, and run on.
            await self._client.delete(
                action.kind, action.name, self._owner.namespace, uid=action.uid, propagation="Background"
            )
            self._report("Delete", action.kind, action.name)
        except (NotFound, Conflict):
            pass  # gone, or another object has its name
        self._written.removed.add(action.uid)
        return ActionStatus.DONE

    async def _patch(self, action: Patch) -> ActionStatus:
        metadata = action.patch.get("metadata")
        guarded = {**(metadata if isinstance(metadata, Mapping) else {}), "uid": action.uid}
        body = {**action.patch, "metadata": guarded}
        try:
            patched = await self._client.patch(action.kind, action.name, body, action.namespace)
        except (Conflict, Invalid, NotFound) as error:
            if not is_other_object(error):
                raise
            return ActionStatus.RETRY  # decided again on what is there then
        self._put(patched)
        return ActionStatus.DONE

    def _status_of(self, meta: ObjectMeta) -> ActionStatus:
        """Tell what finding this object under the name of a child means."""
        if meta.deletion_timestamp is not None:
            return ActionStatus.TERMINATING
        return ActionStatus.DONE if self._owner.owns(meta) else ActionStatus.NAME_CONFLICT

    def _remember(self, child: Child) -> None:
        if child.generator:
            self._written.generated.add(child.name)

    def _note(self, obj: KubernetesObject, child: Child, body: Json) -> None:
        """Remember what was written, by its answer."""
        meta = obj.metadata
        self._written.versions[meta.uid] = version_of(meta)
        if child.merge:
            self._written.fields[meta.uid] = fields_of(body)
        self._put(obj)


def is_other_object(error: ApiError) -> bool:
    """Return True if a write guarded by a uid was rejected because no object of this name has that uid.

    kube-apiserver answers 409 where there is none, and 422 on `metadata.uid` where there is another.
    """
    if isinstance(error, Invalid):
        causes = (error.details.causes if error.details else None) or ()
        return any(cause.field == "metadata.uid" for cause in causes)
    return isinstance(error, Conflict | NotFound)
