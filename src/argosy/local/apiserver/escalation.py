"""Nobody grants what they do not have: the check on roles and bindings that RBAC makes.

A rule is held when the user's own rules, taken together, allow each verb on each of its resources. Who has
the verb `escalate` on roles, or `bind` on the role that is bound, may do more.
"""

from itertools import product

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.http import User
from argosy.local.apiserver.rbac import MASTERS, Attributes, Authorizer, Rule, rules_of
from argosy.local.apiserver.status import forbidden
from argosy.local.schema.model import Json
from argosy.local.schema.reading import part, text

_GROUP = "rbac.authorization.k8s.io"


def check_grant(call: Call, obj: Json, authorizer: Authorizer) -> None:
    """Refuse a role or binding that gives more than its writer has."""
    user, plural, name = call.request.user, call.served.plural, text(obj, "metadata", "name")
    if call.served.group != _GROUP or MASTERS in user.groups:
        return
    if plural in ("roles", "clusterroles"):
        asked = Attributes(user, "escalate", _GROUP, plural, name=name, namespace=call.namespace)
        rules = rules_of(obj)
    else:
        role = part(obj, "roleRef")
        cluster = text(role, "kind") == "ClusterRole"
        kind = "clusterroles" if cluster else "roles"
        asked = Attributes(user, "bind", _GROUP, kind, name=text(role, "name"), namespace=call.namespace)
        stored = call.api.store.collection(f"{kind}.{_GROUP}").get(
            "" if cluster else call.namespace, text(role, "name")
        )
        rules = rules_of(stored.decoded()) if stored else ()
    if authorizer.allowed(asked)[0]:
        return
    held = authorizer.rules(user, call.namespace)
    missing = [rule for rule in rules if not _covered(rule, held, user)]
    if missing:
        raise forbidden(_GROUP, plural, name, _why(user, missing))


def _covered(rule: Rule, held: list[Rule], user: User) -> bool:
    """Whether the user's rules allow all that this one does."""
    if rule.paths:
        wanted = [Attributes(user, verb, path=path) for verb, path in product(rule.verbs, rule.paths)]
    else:
        wanted = [
            Attributes(user, verb, group, resource.partition("/")[0], resource.partition("/")[2], name)
            for verb, group, resource, name in product(
                rule.verbs, rule.groups, rule.resources, rule.names or ("",)
            )
        ]
    return all(any(own.allows(asked) for own in held) for asked in wanted)


def _why(user: User, missing: list[Rule]) -> str:
    groups = " ".join(f'"{group}"' for group in user.groups)
    shown = "\n".join(_shown(rule) for rule in missing)
    who = f'user "{user.name}" (groups=[{groups}])'
    return f"{who} is attempting to grant RBAC permissions not currently held:\n{shown}"


def _shown(rule: Rule) -> str:
    def quoted(values: frozenset[str] | tuple[str, ...]) -> str:
        return " ".join(f'"{value}"' for value in sorted(values))

    if rule.paths:
        return f"{{NonResourceURLs:[{quoted(rule.paths)}], Verbs:[{quoted(rule.verbs)}]}}"
    names = f", ResourceNames:[{quoted(rule.names)}]" if rule.names else ""
    return (
        f"{{APIGroups:[{quoted(rule.groups)}], Resources:[{quoted(rule.resources)}]{names}, "
        f"Verbs:[{quoted(rule.verbs)}]}}"
    )
