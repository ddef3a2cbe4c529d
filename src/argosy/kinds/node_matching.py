"""Decides whether a node satisfies a pod's nodeSelector, required node affinity and tolerations.

The rules are those of the Kubernetes API reference. They are functions of plain values, because three callers
share them: the local scheduler, taint-based eviction, and the operator's built-in gang scheduling.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

Quantities = dict[str, str | int | float]


class Requirements(Struct):
    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)


class ContainerPort(Struct, rename="camel"):
    container_port: int
    name: str = ""
    protocol: str = "TCP"
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")


class Container(Struct, rename="camel"):
    name: str = ""
    resources: Requirements = field(default_factory=Requirements)
    ports: list[ContainerPort] = field(default_factory=list)
    restart_policy: str = ""


class Expression(Struct):
    """One requirement of a label selector or of a node selector term."""

    key: str
    operator: str
    values: list[str] = field(default_factory=list)


class NodeSelectorTerm(Struct, rename="camel"):
    match_expressions: list[Expression] = field(default_factory=list)
    match_fields: list[Expression] = field(default_factory=list)


class NodeSelector(Struct, rename="camel"):
    node_selector_terms: list[NodeSelectorTerm] = field(default_factory=list)


class PreferredTerm(Struct):
    weight: int = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Struct):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredTerm] = field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Toleration(Struct, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TaintLike(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def effect(self) -> str: ...
    @property
    def value(self) -> str: ...


Taint = TypeVar("Taint", bound=TaintLike)


def node_matches(
    selector: Mapping[str, str], affinity: NodeAffinity | None, name: str, labels: Mapping[str, str]
) -> bool:
    """Return True if nodeSelector and required node affinity accept a node of this name and these labels."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    if affinity is None or affinity.required is None:
        return True
    return any(node_term_matches(term, name, labels) for term in affinity.required.node_selector_terms)


def node_term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return True if all requirements of a term hold. An empty term matches no node, as in Kubernetes."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(matches(expression, labels) for expression in term.match_expressions) and all(
        matches(expression, {"metadata.name": name}) for expression in term.match_fields
    )


def tolerates(toleration: Toleration, taint: TaintLike) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        return _compare_integers(toleration.operator, taint.value, toleration.value)
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration], *effects: str) -> Taint | None:
    """Return the first taint with one of these effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(item, taint) for item in tolerations):
            return taint
    return None


def matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Return True if labels satisfy one requirement of a selector."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if value is not None and len(expression.values) == 1:
            return _compare_integers(expression.operator, value, expression.values[0])
        case _:
            return False


def _compare_integers(operator: str, left: str, right: str) -> bool:
    try:
        return int(left) > int(right) if operator == "Gt" else int(left) < int(right)
    except ValueError:
        return False
