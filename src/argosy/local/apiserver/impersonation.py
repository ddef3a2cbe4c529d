"""Asking in someone else's name (`kubectl --as`), which needs a right for each name."""

from argosy.local.apiserver.http import Request, User
from argosy.local.apiserver.rbac import Authorizer, asked_of, denied
from argosy.local.apiserver.rules import Attributes
from argosy.local.apiserver.target import parse_target

_ACCOUNT = "system:serviceaccount:"


def impersonated(request: Request, authorizer: Authorizer) -> User:
    """The user that a request wants to be, or the one that it is; 403 when it may not."""
    name = request.header(b"impersonate-user")
    if not name:
        return request.user
    groups = [value.decode("latin-1") for key, value in request.raw_headers if key == b"impersonate-group"]
    wanted = [_user_right(request.user, name)]
    wanted += [Attributes(request.user, "impersonate", "", "groups", name=group) for group in groups]
    for asked in wanted:
        if not authorizer.allowed(asked)[0]:
            error = denied(asked)
            error.details = denied(asked_of(request, parse_target(request.path), "")).details
            raise error
    if name.startswith(_ACCOUNT) and not groups:
        namespace = name.removeprefix(_ACCOUNT).split(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    everyone = [] if name == "system:anonymous" else ["system:authenticated"]
    return User(name, request.header(b"impersonate-uid"), tuple(dict.fromkeys([*groups, *everyone])))


def _user_right(user: User, name: str) -> Attributes:
    if name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        return Attributes(user, "impersonate", "", "serviceaccounts", name=account, namespace=namespace)
    return Attributes(user, "impersonate", "", "users", name=name)
