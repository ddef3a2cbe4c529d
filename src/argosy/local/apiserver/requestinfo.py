"""Parses paths below /api and /apis, and determines the verb of a request."""

import msgspec

from argosy.local.apiserver.http import Request


class Target(msgspec.Struct, frozen=True):
    """`namespace` is empty for all namespaces and for cluster scope."""

    group: str
    version: str
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def parse_target(path: str) -> Target | None:
    """Return the target of a resource path; None for any other path."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if not rest or "" in rest:
        return None
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (rest[2] in ("status", "finalize") and len(rest) == 3)
    ):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
    plural, name, subresource, tail = (*rest[:3], *[""] * (3 - len(rest[:3])), "/".join(rest[3:]))
    return Target(group, version, namespace, plural, name, subresource, tail)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def verb_of(request: Request, target: Target) -> str:
    """Return the verb of a request, as in RBAC and in error messages."""
    if request.method in ("GET", "HEAD"):
        if target.name:
            return "get"
        return "watch" if request.flag("watch") else "list"
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(request.method, request.method.lower())
