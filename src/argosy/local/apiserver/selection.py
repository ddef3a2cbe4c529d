"""The selection of a list, watch or deletecollection by namespace, labels and fields."""

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import bad_request
from argosy.local.apiserver.store import Stored
from argosy.local.schema.selectors import FieldTerm, LabelSelector, SelectorError, parse_fields, parse_labels


class Selection(msgspec.Struct, frozen=True):
    """Namespace (None for all), label selector and field selector of a request."""

    namespace: str | None
    labels: LabelSelector
    fields: tuple[tuple[int, bool, str], ...]
    name: str | None
    indexed: tuple[int, str] | None = None
    """A field that Kubernetes has an index of, and its value: the node of pods."""

    @property
    def everything(self) -> bool:
        """Whether only the namespace restricts the selection."""
        return self.labels.empty and not self.fields and self.name is None

    def is_in_index(self, stored: Stored) -> bool:
        """Return True if the indexed field, if any, has the value."""
        return self.indexed is None or stored.fields[self.indexed[0]] == self.indexed[1]

    def matches(self, stored: Stored) -> bool:
        if self.namespace is not None and stored.namespace != self.namespace:
            return False
        if self.name is not None and stored.name != self.name:
            return False
        for index, equal, value in self.fields:
            actual = _special(stored, index) if index < 0 else stored.fields[index]
            if (actual == value) is not equal:
                return False
        return self.labels.matches(stored.labels)


_NAME, _NAMESPACE = -1, -2


def read_selection(request: Request, served: Served, namespace: str, name: str = "") -> Selection:
    """Return the selection of a request; `name` is that of a watch on a single object."""
    labels, terms = read_selectors(request)
    fields: list[tuple[int, bool, str]] = []
    pinned: str | None = name or None
    indexed: tuple[int, str] | None = None
    inside: str | None = (namespace or None) if served.namespaced else ""
    for term in terms:
        index = _index(served, term)
        if index == _NAME and term.equal and pinned is None:
            pinned = term.value
        else:
            fields.append((index, term.equal, term.value))
        if (served.storage, term.field, term.equal) == ("pods", "spec.nodeName", True):
            indexed = (index, term.value)
    return Selection(inside, labels, tuple(fields), pinned, indexed)


def read_selectors(request: Request) -> tuple[LabelSelector, tuple[FieldTerm, ...]]:
    """Return the parsed selectors; whether the kind has these fields is not checked."""
    try:
        labels = parse_labels(request.parameter("labelSelector"))
        return labels, tuple(parse_fields(request.parameter("fieldSelector")).terms)
    except SelectorError as error:
        raise bad_request(str(error)) from error


def _index(served: Served, term: FieldTerm) -> int:
    if term.field in ("metadata.name", "name"):
        return _NAME
    if term.field == "metadata.namespace" and served.namespaced:
        return _NAMESPACE
    field = term.field
    if served.group == "events.k8s.io":
        field = _EVENT_NAMES.get(field, field)
    if field in served.field_paths:
        return served.field_paths.index(field)
    if served.custom is None and not served.field_paths:
        supported = '"metadata.name", "metadata.namespace"' if served.namespaced else '"metadata.name"'
        raise bad_request(f'"{term.field}" is not a known field selector: only {supported}')
    if served.storage == "jobs.batch":
        raise bad_request(f'field label "{term.field}" not supported for Job')
    raise bad_request(f"field label not supported: {term.field}")


_EVENT_NAMES = {
    "regarding.kind": "involvedObject.kind",
    "regarding.namespace": "involvedObject.namespace",
    "regarding.name": "involvedObject.name",
    "regarding.uid": "involvedObject.uid",
    "regarding.apiVersion": "involvedObject.apiVersion",
    "regarding.resourceVersion": "involvedObject.resourceVersion",
    "regarding.fieldPath": "involvedObject.fieldPath",
    "reportingController": "reportingComponent",
}


def _special(stored: Stored, index: int) -> str:
    return stored.name if index == _NAME else stored.namespace
