"""Builds URL paths, queries and Accept headers of requests to the API server."""

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
    """Return the path of a collection, an object or a subresource, with names quoted."""
    if creating and kind.resource.namespaced and not namespace:
        raise ValueError(f"{kind.resource.kind}: a namespace is required to create one")
    return kind.resource.path(_quote(name), _quote(namespace), subresource)


def _quote(part: str | None) -> str | None:
    if not part or SAFE_NAME.fullmatch(part):
        return part
    return quote(part, safe=":@")


SAFE_NAME = re.compile(r"[a-z0-9:@.-]+")
"""Names that need no quoting, as almost all do. This check is ten times as fast as quoting."""


def with_query(path: str, query: Query | str | None) -> str:
    """Append a query to a path; a query given as a string is already quoted."""
    if not query:
        return path
    return f"{path}?{query if isinstance(query, str) else urlencode(query)}"


def namespace_in(target: str) -> str:
    """Return the namespace in a path; "" if the object is cluster-scoped."""
    _, _, rest = target.partition("/namespaces/")
    return rest.partition("/")[0]


def selector_query(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}


def accept_header(kind: type[ApiObject], suffix: str = "") -> str:
    """Return the Accept header for a kind.

    For a struct with metadata only, the server sends metadata only. Data of Secrets is then not transferred.
    """
    if getattr(kind, "__struct_fields__", None) == ("metadata",):
        return metadata_only_header(suffix)
    return "application/json"


def metadata_only_header(suffix: str = "") -> str:
    """Return the Accept header for metadata only; a server that does not support it sends whole objects."""
    return f"application/json;as=PartialObjectMetadata{suffix};g=meta.k8s.io;v=v1,application/json"
