"""What a reconciler asks to have done, and what became of it.

Actions are safe to repeat and to execute late: a creation never replaces anything, and every other write
names the uid of the object that it is meant for. So a decision that was executed by half, or twice, does no
harm. A reconcile waits for the writes that it asked for; a command in a container (`Exec`) runs in the
background, and its answer is an input of a later reconcile.
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


class Exec(Struct, frozen=True):
    """Run a command in a pod of the object's namespace, in the background; the answer is an `ExecResult`.

    The `key` is the identity of the call among those of one reconciled object. While the decisions of that
    object contain the key, the command is started once, and its answer is an input of every reconcile. The
    first decision without the key, once its status is written, drops the answer, or cancels the command if
    it has not ended. So record what follows from an answer in the decision that leaves its key out. To run
    a command again, use another key, or leave the key out of one decision.

    The command must be safe to repeat: an operator that is killed or loses its Lease before it has recorded
    the answer runs it again, perhaps while the first one still runs, for a cancelled or timed out command is
    not necessarily ended in its container. A command that must take effect once keeps a marker there: it
    goes on only if it could create a folder, and otherwise returns the exit code that the first one left.
    """

    key: str
    pod: str
    uid: str
    """Of the pod. In another pod of this name the command is not run; see `reconcile.pod_exec` for what is
    left of that race."""
    container: str
    command: tuple[str, ...]
    """Program and arguments; no shell is added. They are part of a URL, so keep them below 8 kB and send
    the rest as stdin."""
    stdin: bytes = b""
    """Sent whole and then closed. The command must read all of it: where a command leaves some unread,
    Kubernetes may break the connection or never report the end, to kubectl neither."""
    timeout_seconds: float = 30.0
    """At most `MAX_EXEC_SECONDS`. What takes longer is started detached, and asked for by further calls."""


MAX_EXEC_SECONDS = 600.0
"""The longest that a command occupies one of the operator's slots, whatever its own limit is."""


AwaitedAction = Apply | Remove | Patch
"""Executed by the reconcile that asked for it, which waits for the result."""

Action = AwaitedAction | Exec


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


class ExecStatus(StrEnum):
    """What became of a command, by what the next reconcile does about it."""

    DONE = "Done"
    """It ran in the pod of this uid and ended: see the exit code."""
    NOT_REACHABLE = "NotReachable"
    """It could not be started, or the connection broke and it may have run: the message says why. That may
    pass (a container that does not run yet, an API server that is down) or last (no such program, no right).
    """
    TIMED_OUT = "TimedOut"
    """It did not end in time, and its connection was closed. It may still run."""
    POD_GONE = "PodGone"
    """No pod of this name has this uid any more, or that pod has ended. The command may have run."""


class ExecResult(Struct, frozen=True):
    """What became of one `Exec`; lost when the operator restarts, which runs the command again."""

    key: str
    status: ExecStatus = ExecStatus.DONE
    exit_code: int | None = None
    """None unless the status is DONE."""
    stdout: bytes = b""
    """At most the last `MAX_OUTPUT_BYTES`."""
    stderr: bytes = b""
    """At most the last `MAX_OUTPUT_BYTES`."""
    message: str = ""
    """Why it was not done."""


MAX_OUTPUT_BYTES = 4096
"""How much of each output of a command is kept."""
