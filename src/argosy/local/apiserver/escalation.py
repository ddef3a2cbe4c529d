"""Prevents privilege escalation: users can only grant rights that they have.

A user has a right if their rules cover each verb on each resource of the granted rule. The verb `escalate` on
a role, or `bind` on the bound role, allows to grant more.
"""

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.http import User
from argosy.local.apiserver.policy_rules import EVERYTHING, Attributes, Rule, format_list, missing, rules_of
from argosy.local.apiserver.rbac import GROUP, MASTERS, role_of, together
from argosy.local.apiserver.status import StatusError, forbidden, not_found
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str


def check_grant(call: Call, obj: Json, old: Json | None) -> None:
    """Raise 403 if a role or binding grants rights that the user does not have."""
    if MASTERS in call.request.user.groups or (old is not None and _only_collected(obj, old)):
        return
    if call.served.plural in ("roles", "clusterroles"):
        _check_role(call, obj, old)
    else:
        _check_binding(call, obj)


def _check_role(call: Call, obj: Json, old: Json | None) -> None:
    user, plural = call.request.user, call.served.plural
    # A create request has no name, so `escalate` with resourceNames only allows updates.
    attributes = Attributes(user, "escalate", GROUP, plural, name=call.target.name, namespace=call.namespace)
    if call.api.authorizer.allowed(attributes)[0]:
        return
    _confirm(call, rules_of(obj), get_str(obj, "metadata", "name"))
    if any(get_maps(role, "aggregationRule", "clusterRoleSelectors") for role in (obj, old or {})):
        held, _ = call.api.authorizer.rules(user, call.namespace)
        if missing(held, EVERYTHING):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(GROUP, plural, get_str(obj, "metadata", "name"), why)


def _check_binding(call: Call, obj: Json) -> None:
    role = role_of(obj, call.namespace)
    if role.kind not in ("Role", "ClusterRole"):
        raise StatusError(500, "", f'unsupported role reference kind: "{role.kind}"')
    plural = f"{role.kind.lower()}s"
    attributes = Attributes(
        call.request.user, "bind", GROUP, plural, name=role.name, namespace=call.namespace
    )
    if call.api.authorizer.allowed(attributes)[0]:
        return
    rules = call.api.authorizer.rules_of(role)
    if rules is None:
        raise not_found(
            GROUP, call.served.plural, role.name
        )  # as in Kubernetes, with the resource of the binding
    _confirm(call, rules, get_str(obj, "metadata", "name"))


def _confirm(call: Call, rules: tuple[Rule, ...], name: str) -> None:
    user = call.request.user
    held, problems = call.api.authorizer.rules(user, call.namespace)
    if lacking := missing(held, rules):
        raise forbidden(GROUP, call.served.plural, name, _why(user, lacking, problems))


def _why(user: User, lacking: list[Rule], problems: list[str]) -> str:
    shown = "\n".join(sorted({rule.format() for rule in lacking}))
    errors = f"; resolution errors: [{together(problems)}]" if problems else ""
    requester = f'user "{user.name}" (groups={format_list(user.groups)})'
    return f"{requester} is attempting to grant RBAC permissions not currently held:\n{shown}{errors}"


def _only_collected(obj: Json, old: Json) -> bool:
    """Return True if only fields that the garbage collector writes have changed."""

    def rest(each: Json) -> Json:
        ignored = ("ownerReferences", "finalizers", "managedFields")
        metadata = {key: value for key, value in get_map(each, "metadata").items() if key not in ignored}
        return {**each, "metadata": metadata}

    return rest(obj) == rest(old)
