"""Impersonation (`kubectl --as`), which needs the right to impersonate the user, each group and each extra.

It applies to all requests, including streams; an impersonating request has only the rights of that user.
"""

from collections.abc import Iterator
from urllib.parse import unquote

from argosy.local.apiserver.http import Request, User
from argosy.local.apiserver.policy_rules import Attributes
from argosy.local.apiserver.rbac import Authorizer, attributes_of, denied
from argosy.local.apiserver.requestinfo import parse_target
from argosy.local.apiserver.status import bad_request

_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATION = "authentication.k8s.io"
_PREFIX, _EXTRA = b"impersonate-", b"impersonate-extra-"


def acting_user(request: Request, authorizer: Authorizer) -> User:
    """Return the impersonated or authenticated user of a request; 403 if impersonation is not allowed."""
    headers = [
        (key, value.decode("latin-1")) for key, value in request.raw_headers if key.startswith(_PREFIX)
    ]
    if not headers:
        return request.user
    name = request.header(b"impersonate-user")
    if not name:
        raise bad_request("Impersonate-User: required with any other Impersonate header")
    groups = [value for key, value in headers if key == b"impersonate-group"]
    uid = request.header(b"impersonate-uid")
    extra: dict[str, list[str]] = {}
    for key, value in headers:
        if key.startswith(_EXTRA):
            extra.setdefault(unquote(key.removeprefix(_EXTRA).decode("latin-1")).lower(), []).append(value)
    for attributes in _rights(request.user, name, groups, uid, extra):
        if not authorizer.allowed(attributes)[0]:
            error = denied(attributes)
            error.details = denied(attributes_of(request, parse_target(request.path), "")).details
            raise error
    return User(name, uid, _all_groups(name, groups), extra)


def _rights(
    user: User, name: str, groups: list[str], uid: str, extra: dict[str, list[str]]
) -> Iterator[Attributes]:
    """Yield the rights that the impersonation needs."""
    if name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        yield Attributes(user, "impersonate", "", "serviceaccounts", name=account, namespace=namespace)
    else:
        yield Attributes(user, "impersonate", "", "users", name=name)
    for group in groups:
        yield Attributes(user, "impersonate", "", "groups", name=group)
    if uid:
        yield Attributes(user, "impersonate", _AUTHENTICATION, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Attributes(user, "impersonate", _AUTHENTICATION, "userextras", key, value)


def _all_groups(name: str, groups: list[str]) -> tuple[str, ...]:
    if name.startswith(_ACCOUNT) and not groups:
        namespace = name.removeprefix(_ACCOUNT).split(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    everyone = [] if name == "system:anonymous" else ["system:authenticated"]
    return tuple(dict.fromkeys([*groups, *everyone]))
