"""Decides which nodes get no new pods for a while, because pods failed there and nowhere else.

The evidence is failed pods of all jobs. A failure says nothing about its node if the pod was removed by the
cluster or exceeded its own limits, or if another pod of the same job ended with the same exit code on another
node: then the program is the likelier cause.

Users decide how their pods end. What pods of one namespace show therefore keeps only pods of that namespace
away; the quarantine concerns everybody once several namespaces have come to the same result by themselves.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.kinds.quantity import parse_duration
from argosy.kinds.text import pluralize, quote_value
from argosy.workload.model import Workload
from argosy.workload.observed import ObservedPod


class QuarantineRules(Struct, frozen=True):
    """When nodes are quarantined, and for how long."""

    enabled: bool = False
    """Off by default: the operator needs the right to patch nodes."""
    failures: int = 3
    """Failed pods on the node within the window."""
    replicas: int = 2
    """Different replicas, of one or several jobs, among them."""
    namespaces: int = 2
    """Namespaces in which that happened before pods of all namespaces avoid the node."""
    window: float = 600.0
    duration: float = 3600.0
    max_percent: int = 10
    """Share of the nodes that may be in quarantine at a time, for all namespaces and for each of them; of two
    or more nodes one always may."""


def parse_rules(text: str) -> QuarantineRules:
    """Return the rules of `on`, `off` or `failures=3,window=10m`; raise ValueError for another text."""
    if text in ("on", "off"):
        return QuarantineRules(enabled=text == "on")
    rules = QuarantineRules(enabled=True)
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name in _TIMES:
            rules = replace(rules, **{name: _check_bounds(item, parse_duration(value), 1, MAX_SECONDS)})
        elif name in _NUMBERS:
            field, highest = _NUMBERS[name]
            number = int(value) if value.isascii() and value.isdecimal() else 0
            rules = replace(rules, **{field: _check_bounds(item, number, 1, highest)})
        else:
            known = ", ".join((*_NUMBERS, *_TIMES))
            raise ValueError(f"unknown rule {quote_value(name)}: must be on, off, or some of {known}")
    return rules


MAX_SECONDS = 30 * 86_400
"""The longest window and duration."""
_TIMES = ("window", "duration")
_NUMBERS = {
    "failures": ("failures", 1000),
    "replicas": ("replicas", 1000),
    "namespaces": ("namespaces", 10),
    "maxPercent": ("max_percent", 50),
}


N = TypeVar("N", int, float)


def _check_bounds(item: str, number: N, lowest: int, highest: int) -> N:
    if not lowest <= number <= highest:
        raise ValueError(f"invalid value {quote_value(item)}: must be between {lowest} and {highest}")
    return number


class NodeFailure(Struct, frozen=True):
    """A pod that failed on a node."""

    node: str
    namespace: str
    job: str
    """The uid of its job."""
    role: str
    index: int
    pod: str
    """The uid of the pod."""
    exit_code: int | None
    at: datetime


def failure_on_node(workload: Workload, pod: ObservedPod, now: datetime) -> NodeFailure | None:
    """Return the failure of a pod for which its node may be the cause; None if it certainly is not."""
    if pod.phase != "Failed" or not pod.node or pod.disrupted or pod.over_limit or pod.out_of_memory:
        return None
    return NodeFailure(
        pod.node, workload.namespace, workload.uid, pod.role, pod.index, pod.uid, pod.exit_code, now
    )


def is_recent(failure: NodeFailure, rules: QuarantineRules, now: datetime) -> bool:
    return (now - failure.at).total_seconds() <= rules.window


def find_suspects(
    failures: Sequence[NodeFailure], rules: QuarantineRules, now: datetime
) -> dict[str, dict[str, str]]:
    """Return the nodes on which enough pods of enough replicas failed, by namespace, with the reason."""
    recent = [failure for failure in failures if is_recent(failure, rules, now)]
    nodes_by_end: dict[tuple[str, int | None], set[str]] = {}
    for failure in recent:
        nodes_by_end.setdefault((failure.job, failure.exit_code), set()).add(failure.node)
    blamed: dict[tuple[str, str], list[NodeFailure]] = {}
    for failure in recent:
        if len(nodes_by_end[failure.job, failure.exit_code]) == 1:
            blamed.setdefault((failure.node, failure.namespace), []).append(failure)
    suspects: dict[str, dict[str, str]] = {}
    for (node, namespace), found in sorted(blamed.items()):
        pods = {failure.pod for failure in found}
        replicas = {(failure.job, failure.role, failure.index) for failure in found}
        if len(pods) >= rules.failures and len(replicas) >= rules.replicas:
            number, count = pluralize(len(pods), "pod"), pluralize(len(replicas), "replica")
            reason = f"{number} of {count} failed there, and nowhere else, within {rules.window:g} s"
            suspects.setdefault(node, {})[namespace] = reason
    return suspects


class NodeQuarantine(Struct, frozen=True):
    """The quarantine of a node, as its annotations show it."""

    until: datetime
    namespaces: frozenset[str] = frozenset()
    """The namespaces whose pods avoid the node; empty: all."""

    def concerns(self, namespace: str, now: datetime) -> bool:
        return self.until > now and (not self.namespaces or namespace in self.namespaces)


def plan_quarantines(
    suspects: Mapping[str, Mapping[str, str]],
    current: Mapping[str, NodeQuarantine],
    nodes: int,
    rules: QuarantineRules,
    now: datetime,
) -> dict[str, NodeQuarantine]:
    """Return the quarantines to begin or to widen, by node, of a cluster with this number of nodes."""
    allowed = max_quarantined(nodes, rules)
    until = (now + timedelta(seconds=rules.duration)).replace(microsecond=0)
    state = {name: item for name, item in current.items() if item.until > now}
    planned: dict[str, NodeQuarantine] = {}
    for name, found in suspects.items():
        before = state.get(name)
        if before is not None and not before.namespaces:
            continue
        earlier = before.namespaces if before is not None else frozenset()
        together = earlier | set(found)
        everywhere = sum(not item.namespaces for item in state.values())
        if len(together) >= rules.namespaces and everywhere < allowed:
            after = NodeQuarantine(until)
        else:
            added = sorted(
                namespace
                for namespace in set(found) - earlier
                if sum(item.concerns(namespace, now) for item in state.values()) < allowed
            )
            room = MAX_NAMESPACES - len(earlier)
            if not added[:room]:
                continue
            after = NodeQuarantine(until, earlier | set(added[:room]))
        state[name] = planned[name] = after
    return planned


MAX_NAMESPACES = 10
"""Namespaces that the annotation of a node lists."""


def max_quarantined(nodes: int, rules: QuarantineRules) -> int:
    """Return how many nodes of a cluster may be in quarantine at a time; never the only one."""
    if nodes < 2:
        return 0
    return min(max(nodes * rules.max_percent // 100, 1), nodes - 1)


def read_quarantine(node: Node) -> NodeQuarantine | None:
    """Return the quarantine that a node shows; None if there is none, or the annotation is no time."""
    annotations = node.metadata.annotations
    try:
        time = datetime.fromisoformat(annotations.get(labels.QUARANTINE_UNTIL, ""))
        until = time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None
    names = annotations.get(labels.QUARANTINE_NAMESPACES, "").split(",")
    return NodeQuarantine(until, frozenset(filter(None, names))) if until is not None else None


def quarantine_annotations(quarantine: NodeQuarantine, reason: str) -> dict[str, str | None]:
    """Return the annotations of a Node in quarantine, for a patch."""
    return {
        labels.QUARANTINE_UNTIL: f"{quarantine.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        labels.QUARANTINE_NAMESPACES: ",".join(sorted(quarantine.namespaces)) or None,
        labels.QUARANTINE_REASON: reason,
        labels.QUARANTINE_SOURCE: labels.MANAGER,
    }


NO_QUARANTINE: Mapping[str, str | None] = dict.fromkeys(
    (
        labels.QUARANTINE_UNTIL,
        labels.QUARANTINE_NAMESPACES,
        labels.QUARANTINE_REASON,
        labels.QUARANTINE_SOURCE,
    )
)
"""Removes these annotations."""
