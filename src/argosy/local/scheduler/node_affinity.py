"""Matches pods with nodes: selectors, node affinity, host ports; taints are in `kinds.node_matching`."""

from collections.abc import Iterable, Mapping

from argosy.kinds.node_matching import ContainerPort, matches, node_matches, node_term_matches
from argosy.local.controllers.api_types import LabelSelector, Pod


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return True if the selector matches; a missing one matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        matches(expression, labels) for expression in selector.match_expressions
    )


def matches_node(pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
    """Return True if the pod's nodeSelector and required node affinity match the node."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return node_matches(pod.spec.node_selector, affinity, name, labels)


def node_affinity_score(pod: Pod, name: str, labels: Mapping[str, str]) -> int:
    """Return the total weight of the preferred node affinity terms that match."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None:
        return 0
    return sum(term.weight for term in affinity.preferred if node_term_matches(term.preference, name, labels))


HostPort = tuple[str, int, str]


def host_ports(pod: Pod) -> list[HostPort]:
    """Return the (protocol, port, address) triples that the pod uses on its node."""
    containers = [
        *pod.spec.containers,
        *(c for c in pod.spec.init_containers if c.restart_policy == "Always"),
    ]
    ports: Iterable[ContainerPort] = (port for container in containers for port in container.ports)
    return [(port.protocol, port.host_port, port.host_ip or "0.0.0.0") for port in ports if port.host_port]  # noqa: S104 - the API's wildcard, nothing is bound here


def ports_conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    held = list(taken)
    return any(
        protocol == other_protocol
        and port == other_port
        and (address == other or "0.0.0.0" in (address, other))  # noqa: S104 - the API's wildcard
        for protocol, port, address in wanted
        for other_protocol, other_port, other in held
    )
