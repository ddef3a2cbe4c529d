"""What a reconciler asks to have done, and what became of it.

Actions are safe to repeat and to execute late: a creation never replaces anything, and every other write
names the uid of the object that it is meant for. So a decision that was executed by half, or twice, does no
harm.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from argosy.plan.children import Child, Json, KubernetesObject


class Apply(Struct, frozen=True):
    """Create the child, or bring the existing one of this uid to its body by server-side apply."""

    child: Child
    uid: str = ""
    """Empty: no child of this name has been observed."""


class Remove(Struct, frozen=True):
    """Delete one child. Done if it is gone, or if another object has its name."""

    kind: type[KubernetesObject]
    name: str
    uid: str


class Patch(Struct, frozen=True):
    """Merge a patch into an object that is not a child, if it has this uid.

    Whatever it changes outlives the owner, so its kind needs a finalizer to undo it.
    """

    kind: type[KubernetesObject]
    name: str
    namespace: str
    uid: str
    patch: Json


Action = Apply | Remove | Patch


class EmitEvent(Struct, frozen=True):
    """One Kubernetes Event about the reconciled object, recorded after its status was written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class ActionStatus(StrEnum):
    """What became of an action, by what the next reconcile does about it."""

    DONE = "Done"
    SPEC_REJECTED = "SpecRejected"
    """Rejected for good, and the message names the fields of the owner's own spec that must change."""
    INVALID = "Invalid"
    """The body is rejected for good (400, 413, 422): the owner's spec must change."""
    FORBIDDEN = "Forbidden"
    """Rejected for now (permissions, quota, policy, webhook): reported and tried again."""
    TERMINATING = "Terminating"
    """The name is taken by an object that is being deleted: waited for."""
    NAME_CONFLICT = "NameConflict"
    """The name is taken by an object that is not ours: left alone and reported."""
    RETRY = "Retry"
    """No answer, or one that says to try again."""


class ActionResult(Struct, frozen=True):
    """What became of one action on one object.

    Results other than DONE are an input of the next reconcile. They are lost when the operator restarts,
    which costs one more try.
    """

    kind: str
    name: str
    status: ActionStatus = ActionStatus.DONE
    message: str = ""
    """Why it was not done, usually what the API server answered."""
    verb: Literal["Create", "Delete", "Patch", "Get"] = "Create"
    role: str = ""
    """Of a pod or a Service that was to be created."""
    index: int | None = None
    """Of a pod that was to be created."""
    reason: str = ""
    """Why the object was to be deleted."""
