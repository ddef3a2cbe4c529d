"""The fields of built-in kinds that field selectors support, and functions that read them.

The functions are created once per kind, because every write reads all of these fields.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from argosy.local.schema.model import Json
from argosy.local.schema.selectors import field_value
from argosy.local.schema.unstructured import get_map, get_maps, get_str

Reader: TypeAlias = Callable[[Json], str]

SELECTABLE_FIELDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "Pod"): frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        }
    ),
    ("", "Event"): frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
    ("", "Namespace"): frozenset({"status.phase", "name"}),
    ("", "Node"): frozenset({"spec.unschedulable"}),
    ("", "Secret"): frozenset({"type"}),
    ("", "Service"): frozenset({"spec.clusterIP", "spec.type"}),
    ("", "PersistentVolumeClaim"): frozenset({"name"}),
    ("apps", "ReplicaSet"): frozenset({"status.replicas"}),
    ("batch", "Job"): frozenset({"status.successful"}),
}


def reader_of(group: str, kind: str, field: str) -> Reader:
    """Return a function that returns a selectable field as text."""
    special = _SPECIAL.get((group, kind, field))
    if special is not None:
        return special
    return _plain("metadata.name" if field == "name" else field)


def _plain(field: str, otherwise: str = "") -> Reader:
    steps = tuple(field.split("."))
    return lambda obj: field_value(obj, steps) or otherwise


def _addresses(pod: Json) -> str:
    if "podIPs" not in get_map(pod, "status"):
        return ""
    return ",".join(str(entry.get("ip")) for entry in get_maps(pod, "status", "podIPs"))


def _source(event: Json) -> str:
    return get_str(event, "source", "component") or get_str(event, "reportingComponent")


_SPECIAL: Mapping[tuple[str, str, str], Reader] = {
    ("", "Pod", "spec.hostNetwork"): _plain("spec.hostNetwork", "false"),
    ("", "Pod", "status.podIPs"): _addresses,
    ("", "Node", "spec.unschedulable"): _plain("spec.unschedulable", "false"),
    ("", "Event", "source"): _source,
    ("apps", "ReplicaSet", "status.replicas"): _plain("status.replicas", "0"),
    ("batch", "Job", "status.successful"): _plain("status.succeeded", "0"),
}
