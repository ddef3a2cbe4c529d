"""What a reconciler asks to have done, and what became of it.

Actions are safe to repeat and to execute late: a creation never replaces anything, and every other write
names the uid of the object that it is meant for. So a decision that was executed by half, or twice, does no
harm. A reconcile waits for the writes that it asked for; a command in a container (`Exec`) and a call outside
of Kubernetes (`Call`) run in the background, and their answers are inputs of a later reconcile.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from msgspec import Struct, field

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


class Check(Struct, frozen=True):
    """Ask the API server whether it would accept a child (`dryRun=All`), without creating it.

    The answer is `Inputs.checked(child)` in every later reconcile, until a decision leaves the check out.
    """

    child: Child

    @property
    def key(self) -> str:
        """Return the identity of the check: a child with another content is checked again."""
        return check_key(self.child)


def check_key(child: Child) -> str:
    """Return the key under which the answer to the `Check` of a child is found."""
    return f"{child.kind.resource.kind}/{child.name}/{child.digest}"


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
    read_only: bool = False
    """It changes nothing, and which pod of this name answers is no matter: the pod is not read before and
    after."""
    timeout_seconds: float = 30.0
    """At most `MAX_EXEC_SECONDS`. What takes longer is started detached, and asked for by further calls."""


MAX_EXEC_SECONDS = 600.0
"""The longest that a command occupies one of the operator's slots, whatever its own limit is."""


class SecretRef(Struct, frozen=True):
    """A Secret, by name. It is read when a driver needs it, and its content is never stored.

    An empty namespace is that of the object. A Secret of another namespace is used only if its annotation
    `labels.ALLOWED_NAMESPACES` names the namespace of the object.
    """

    name: str
    namespace: str = ""


class Call(Struct, frozen=True):
    """Ask a driver to do something outside of Kubernetes, in the background; the answer is a `CallResult`.

    The `key` is what it is for an `Exec`: the call is made once while decisions contain the key, and its
    answer is an input until a decision leaves the key out.

    The request must be safe to repeat, and must do no harm when it arrives late: an operator that is killed
    before it has recorded the answer makes the call again. So a request that creates something carries the
    name or the request id that was recorded before.
    """

    key: str
    driver: str
    """The name under which the driver is registered."""
    request: Struct
    credentials: SecretRef | None = None
    secrets: Mapping[str, SecretRef] = field(default_factory=dict)
    """Further Secrets that the driver needs. It finds the key `token` of the Secret `join` as `join/token`
    among the credentials."""
    timeout_seconds: float = 30.0


BackgroundAction = Exec | Call
"""Started by the reconcile that asked for it, and answered as an input of a later one."""

AwaitedAction = Apply | Check | Remove | Patch
"""Executed by the reconcile that asked for it, which waits for the result."""

Action = AwaitedAction | BackgroundAction


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
    verb: Literal["Create", "Delete", "Patch", "Get", "Check"] = "Create"
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


class CallStatus(StrEnum):
    """What became of a call, by what the next reconcile does about it."""

    DONE = "Done"
    REFUSED = "Refused"
    """It was answered and not done: see the code."""
    UNAVAILABLE = "Unavailable"
    """There was no answer, or one that says to try again. It may have been done."""
    NO_CREDENTIALS = "NoCredentials"
    """A Secret is missing, or may not be used: nothing was sent."""


class CallResult(Struct, frozen=True):
    """What became of one `Call`; lost when the operator restarts, which makes the call again."""

    key: str
    status: CallStatus = CallStatus.DONE
    value: Struct | None = None
    """What the driver returned."""
    code: str = ""
    """Why it was refused, as one word: the code of the service that refused it."""
    message: str = ""
    """Why it was not done, for people."""


BackgroundResult = ExecResult | CallResult
