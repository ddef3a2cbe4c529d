"""Reads from a Node whether its end is announced: by whom, why, and until when its pods may stay.

Clouds, autoscalers and administrators announce it in different ways; all of them become one `Announcement`.
Which taints announce the end of a node is a setting of the operator, and so is whether a cordon does.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from argosy.kinds import labels, spot
from argosy.kinds.kubernetes import Node
from argosy.kinds.text import quote_value

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint with which an administrator confirms that a node is off and runs no pods."""

MAX_SOURCE_CHARS = 63
"""Longer sources are cut: they are written by others, and are copied to the Record of every job there."""

_ANNOTATIONS = (
    (labels.TERMINATION_DEADLINE, labels.TERMINATION_SOURCE),
    (spot.TERMINATION_DEADLINE, spot.TERMINATION_SOURCE),
)
"""Pairs of annotations on a node whose end is announced: until when it is there, and who says so. The first
announces it whatever its value is: a deadline that cannot be read is a deadline that nobody knows."""

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Deadlines beyond are taken for these, so that seconds can be added to them and subtracted."""

_SHUTTING_DOWN = "node is shutting down"
"""Message of the condition Ready while a kubelet shuts its node down gracefully."""


class NoticeCause(StrEnum):
    """Why a node or a pod will end, the most certain and most urgent first."""

    OUT_OF_SERVICE = "OutOfService"
    """The node is off: an administrator has set the taint `node.kubernetes.io/out-of-service`."""
    PREEMPTED = "Preempted"
    """The machine is taken back by its provider (spot), or the pod is preempted by another one."""
    SHUTDOWN = "Shutdown"
    """The node is shutting down."""
    EVICTED = "Evicted"
    """The pod is being evicted."""
    MAINTENANCE = "Maintenance"
    """The node is taken out of service for maintenance."""
    DRAINED = "Drained"
    """The node is drained, for example by an autoscaler that removes it."""
    CANDIDATE = "Candidate"
    """The node may be removed. This is a hint, which is only shown."""


TAINT_CAUSES: Final = (
    NoticeCause.PREEMPTED,
    NoticeCause.SHUTDOWN,
    NoticeCause.MAINTENANCE,
    NoticeCause.DRAINED,
    NoticeCause.CANDIDATE,
)
"""What a taint may be configured to mean."""

DEFAULT_SECONDS: Final[Mapping[NoticeCause, float]] = {
    NoticeCause.OUT_OF_SERVICE: 0.0,
    NoticeCause.PREEMPTED: 30.0,
    NoticeCause.SHUTDOWN: 30.0,
    NoticeCause.EVICTED: 30.0,
    NoticeCause.MAINTENANCE: 600.0,
    NoticeCause.DRAINED: 600.0,
    NoticeCause.CANDIDATE: 600.0,
}
"""Seconds until the deadline, if none is announced."""

DEFAULT_TAINTS: Final[Mapping[str, NoticeCause]] = {
    labels.TERMINATION_TAINT: NoticeCause.PREEMPTED,
    "aws-node-termination-handler/spot-itn": NoticeCause.PREEMPTED,
    "cloud.google.com/impending-node-termination": NoticeCause.PREEMPTED,
    "remediator.kubernetes.azure.com/unschedulable": NoticeCause.PREEMPTED,
    "aws-node-termination-handler/scheduled-maintenance": NoticeCause.MAINTENANCE,
    "aws-node-termination-handler/asg-lifecycle-termination": NoticeCause.DRAINED,
    "karpenter.sh/disrupted": NoticeCause.DRAINED,
    "ToBeDeletedByClusterAutoscaler": NoticeCause.DRAINED,
    "aws-node-termination-handler/rebalance-recommendation": NoticeCause.CANDIDATE,
    "DeletionCandidateOfClusterAutoscaler": NoticeCause.CANDIDATE,
}
"""Taints of clouds and autoscalers, by key."""


class NoticeRules(Struct, frozen=True):
    """What counts as the announced end of a node."""

    taints: Mapping[str, NoticeCause] = field(default_factory=lambda: DEFAULT_TAINTS)
    """Keys of taints that announce it, whatever their value and effect."""
    cordon: bool = False
    """Whether an unschedulable node is about to be drained."""


class Announcement(Struct, frozen=True):
    """The announced end of a node."""

    node: str
    uid: str
    cause: NoticeCause
    source: str
    """Who announced it: an annotation's value, the key of a taint, or a component of Kubernetes."""
    deadline: datetime | None = None
    """None: not announced, or not readable. Whoever answers the notice remembers when it saw it first, and
    counts `DEFAULT_SECONDS` from then on."""


def parse_taints(text: str) -> dict[str, NoticeCause]:
    """Return the taints of `KEY=CAUSE,KEY=CAUSE`; raise ValueError if the text is not of this form."""
    taints: dict[str, NoticeCause] = {}
    for item in filter(None, text.split(",")):
        key, equals, cause = item.rpartition("=")
        if not key or not equals or cause not in TAINT_CAUSES:
            allowed = ", ".join(TAINT_CAUSES)
            raise ValueError(
                f"invalid taint {quote_value(item)}: must be KEY=CAUSE, with a cause of {allowed}"
            )
        taints[key] = NoticeCause(cause)
    return taints


def find_announcement(node: Node, rules: NoticeRules) -> Announcement | None:
    """Return the announced end of a node; of several the most urgent, with the announced deadline."""
    found = sorted(_causes(node, rules), key=lambda pair: _URGENCY.index(pair[0]))
    if not found:
        return None
    (cause, source), meta = found[0], node.metadata
    return Announcement(meta.name, meta.uid, cause, _printable(source), announced_deadline(node))


def announced_deadline(node: Node) -> datetime | None:
    """Return the earliest time that an annotation announces; None if none can be read."""
    times = (_parse_deadline(node, deadline) for deadline, _ in _ANNOTATIONS)
    return min((time for time in times if time is not None), default=None)


def end_annotations(deadline: datetime, source: str) -> dict[str, str]:
    """Return the annotations that announce the end of a node, never as later than it is."""
    text = _bounded(deadline).isoformat().replace("+00:00", "Z")
    return {spot.TERMINATION_DEADLINE: text, spot.TERMINATION_SOURCE: source}


def is_announced(node: Node, deadline: datetime) -> bool:
    """Return True if an annotation says that a node ends at this time, or earlier."""
    known = announced_deadline(node)
    return known is not None and known <= _bounded(deadline)


_URGENCY = tuple(NoticeCause)


def _causes(node: Node, rules: NoticeRules) -> Iterator[tuple[NoticeCause, str]]:
    annotations = node.metadata.annotations
    for deadline, source in _ANNOTATIONS:
        if deadline in annotations:
            yield NoticeCause.PREEMPTED, annotations.get(source) or deadline
            break
    for taint in node.spec.taints:
        if taint.key == OUT_OF_SERVICE:
            yield NoticeCause.OUT_OF_SERVICE, taint.key
        elif taint.key in rules.taints:
            own = taint.key == labels.TERMINATION_TAINT
            yield rules.taints[taint.key], taint.value if own and taint.value else taint.key
    if any(_is_shutting_down(condition.type, condition.message) for condition in node.status.conditions):
        yield NoticeCause.SHUTDOWN, "kubelet"
    if rules.cordon and node.spec.unschedulable:
        yield NoticeCause.DRAINED, "cordon"


def _is_shutting_down(kind: str, message: str) -> bool:
    return kind == "Ready" and _SHUTTING_DOWN in message


def _parse_deadline(node: Node, annotation: str) -> datetime | None:
    """Return the time in an annotation; None if there is none, or none of RFC 3339 with a zone."""
    try:
        time = datetime.fromisoformat(node.metadata.annotations.get(annotation, ""))
        return _in_seconds(time) if time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _in_seconds(time: datetime) -> datetime:
    """Return the time in UTC, rounded down to seconds; OverflowError if there is no such time."""
    return min(max(time.astimezone(UTC).replace(microsecond=0), _EARLIEST), _LATEST)


def _bounded(time: datetime) -> datetime:
    """Return the same of a time that may be at an end of the calendar."""
    try:
        return _in_seconds(time)
    except OverflowError:
        return _EARLIEST if time.year == datetime.min.year else _LATEST


def _printable(source: str) -> str:
    return "".join(char for char in source if char.isprintable())[:MAX_SOURCE_CHARS]
