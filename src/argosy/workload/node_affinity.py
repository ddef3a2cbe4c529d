"""Keeps pods away from nodes, or on those with a label, by required node affinity besides the template's."""

from collections.abc import Mapping, Sequence

Json = dict[str, object]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ANY_NODE: Json = {}
"""The term of a pod that may be on any node."""


def with_avoided_nodes(spec: Json, nodes: Sequence[str]) -> Json:
    """Return the spec of a pod with the requirement that it is placed on none of these nodes.

    The terms of a node selector are alternatives, so each of them gets the requirements. A template that
    names its node has chosen; what is not valid in it stays as it is, for the API server to reject.
    """
    # The API server allows one name in each requirement on the node's name.
    named: list[Json] = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return _with_requirements(spec, "matchFields", named)


def with_node_labels(spec: Json, key: str, values: Sequence[str]) -> Json:
    """Return the spec of a pod with the requirement that the node has one of these values of a label."""
    return _with_requirements(
        spec, "matchExpressions", [{"key": key, "operator": "In", "values": list(values)}]
    )


def without_node_labels(spec: Json, key: str, values: Sequence[str]) -> Json:
    """Return the spec of a pod with the requirement that the node has none of these values of a label."""
    return _with_requirements(
        spec, "matchExpressions", [{"key": key, "operator": "NotIn", "values": list(values)}]
    )


def _with_requirements(spec: Json, kind: str, requirements: Sequence[Json]) -> Json:
    if not requirements or spec.get("nodeName"):
        return spec
    affinity = spec.get("affinity") or {}
    node_affinity = _object(affinity).get("nodeAffinity") or {}
    required = _object(node_affinity).get(_REQUIRED) or {"nodeSelectorTerms": [_ANY_NODE]}
    terms = _object(required).get("nodeSelectorTerms")
    if not all(isinstance(part, Mapping) for part in (affinity, node_affinity, required)):
        return spec
    if not isinstance(terms, list) or not all(isinstance(term, Mapping) for term in terms):
        return spec
    avoiding = [_with_more(term, kind, requirements) for term in terms]
    changed = {**_object(node_affinity), _REQUIRED: {**_object(required), "nodeSelectorTerms": avoiding}}
    return {**spec, "affinity": {**_object(affinity), "nodeAffinity": changed}}


def _with_more(term: Mapping[str, object], kind: str, requirements: Sequence[Json]) -> Mapping[str, object]:
    """Return the term with more requirements; one without any matches no node, and stays so."""
    if term is not _ANY_NODE and not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    return {**term, kind: [*_list(term.get(kind)), *requirements]}


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
