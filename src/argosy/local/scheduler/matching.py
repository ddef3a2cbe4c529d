"""Does this pod accept this node: labels, selector terms, taints and tolerations, host ports.

The rules are those of Kubernetes' API documentation; each is a function of plain values, so that the
scheduler, the taint eviction and the tests all ask the same question the same way.
"""

from collections.abc import Iterable, Mapping

from argosy.local.controllers.kinds import (
    ContainerPort,
    Expression,
    LabelSelector,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """A missing selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(expression, labels) for expression in selector.match_expressions
    )


def node_term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """An empty term matches no node, as Kubernetes has it."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(expression, labels) for expression in term.match_expressions) and all(
        _holds(expression, {"metadata.name": name}) for expression in term.match_fields
    )


def node_wanted(pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
    """The pod's nodeSelector and required node affinity accept a node of this name and these labels."""
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(node_term_matches(term, name, labels) for term in affinity.required.node_selector_terms)


def node_preference(pod: Pod, name: str, labels: Mapping[str, str]) -> int:
    """The summed weight of the preferred node affinity terms that match."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None:
        return 0
    return sum(term.weight for term in affinity.preferred if node_term_matches(term.preference, name, labels))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        return _numeric(toleration.operator, taint.value, toleration.value)
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: list[Toleration], *effects: str) -> Taint | None:
    """The first taint of these effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(item, taint) for item in tolerations):
            return taint
    return None


HostPort = tuple[str, int, str]


def host_ports(pod: Pod) -> list[HostPort]:
    """The (protocol, port, address) triples that the pod claims on its node."""
    containers = [
        *pod.spec.containers,
        *(c for c in pod.spec.init_containers if c.restart_policy == "Always"),
    ]
    ports: Iterable[ContainerPort] = (port for container in containers for port in container.ports)
    return [(port.protocol, port.host_port, port.host_ip or "0.0.0.0") for port in ports if port.host_port]  # noqa: S104 - the API's wildcard, nothing is bound here


def ports_clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    held = list(taken)
    return any(
        protocol == other_protocol
        and port == other_port
        and (address == other or "0.0.0.0" in (address, other))  # noqa: S104 - the API's wildcard
        for protocol, port, address in wanted
        for other_protocol, other_port, other in held
    )


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
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
            return _numeric(expression.operator, value, expression.values[0])
        case _:
            return False


def _numeric(operator: str, left: str, right: str) -> bool:
    try:
        return int(left) > int(right) if operator == "Gt" else int(left) < int(right)
    except ValueError:
        return False
