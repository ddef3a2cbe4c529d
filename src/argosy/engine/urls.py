"""Where a request goes, and in which form its answer is asked for."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from argosy.engine.objects import ApiObject

Query = Mapping[str, str]


def path_of(
    kind: type[ApiObject],
    name: str | None,
    namespace: str | None,
    subresource: str | None = None,
    *,
    creating: bool = False,
) -> str:
    if creating and kind.resource.namespaced and not namespace:
        raise ValueError(f"{kind.resource.kind}: a namespace is needed to create one")
    return kind.resource.path(_quoted(name), _quoted(namespace), subresource)


def _quoted(part: str | None) -> str | None:
    if not part or PLAIN.fullmatch(part):
        return part
    return quote(part, safe=":@")


PLAIN = re.compile(r"[a-z0-9:@.-]+")
"""What needs no quoting, as almost every name; quoting takes ten times as long as seeing that."""


def with_query(path: str, query: Query | str | None) -> str:
    if not query:
        return path
    return f"{path}?{query if isinstance(query, str) else urlencode(query)}"


def namespace_in(target: str) -> str:
    """The namespace of what a target names; "" if it is cluster-scoped."""
    _, _, below = target.partition("/namespaces/")
    return below.partition("/")[0]


def selection(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}


def accept_header(kind: type[ApiObject], suffix: str = "") -> str:
    """A struct that holds metadata alone is asked for as metadata alone: Secrets stay where they are."""
    if getattr(kind, "__struct_fields__", None) == ("metadata",):
        return metadata_only_header(suffix)
    return "application/json"


def metadata_only_header(suffix: str = "") -> str:
    """How metadata alone is asked for; all comes where that is not known."""
    return f"application/json;as=PartialObjectMetadata{suffix};g=meta.k8s.io;v=v1,application/json"
