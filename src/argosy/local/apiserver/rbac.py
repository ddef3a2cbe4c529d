"""May they: roles and bindings, evaluated as Kubernetes does. The group system:masters may do anything.

Rules are decoded once and kept until a role or binding changes. An aggregated ClusterRole has, beside its own
rules, those of the roles that it selects.
"""

from collections.abc import Iterable, Iterator

import msgspec

from argosy.local.apiserver.http import Request, User
from argosy.local.apiserver.objects import labels_of
from argosy.local.apiserver.status import StatusError
from argosy.local.apiserver.store import Store
from argosy.local.apiserver.target import Target
from argosy.local.schema.model import Json
from argosy.local.schema.reading import part, parts, strings, text
from argosy.local.schema.selectors import SelectorError, parse_fields, selector_from

_GROUP = "rbac.authorization.k8s.io"
_STORAGES = tuple(
    f"{name}.{_GROUP}" for name in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
)
MASTERS = "system:masters"


class Attributes(msgspec.Struct, frozen=True):
    """What is asked for: a resource, or a path when `path` is set."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True):
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]

    def allows(self, asked: Attributes) -> bool:
        if not ("*" in self.verbs or asked.verb in self.verbs):
            return False
        if asked.path:
            return any(
                path in ("*", asked.path) or (path.endswith("*") and asked.path.startswith(path[:-1]))
                for path in self.paths
            )
        wanted = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        return (
            ("*" in self.groups or asked.group in self.groups)
            and (
                "*" in self.resources
                or wanted in self.resources
                or (bool(asked.subresource) and f"*/{asked.subresource}" in self.resources)
            )
            and (not self.names or asked.name in self.names)
        )

    def json(self) -> Json:
        """The rule as SelfSubjectRulesReview lists it."""
        if self.paths:
            return {"verbs": sorted(self.verbs), "nonResourceURLs": list(self.paths)}
        shown: Json = {
            "verbs": sorted(self.verbs),
            "apiGroups": sorted(self.groups),
            "resources": sorted(self.resources),
        }
        return {**shown, "resourceNames": sorted(self.names)} if self.names else shown


class _Binding(msgspec.Struct, frozen=True):
    users: frozenset[str]
    groups: frozenset[str]
    rules: tuple[Rule, ...]
    why: str

    def applies(self, user: User) -> bool:
        return user.name in self.users or not self.groups.isdisjoint(user.groups)


class Authorizer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_at: tuple[int, ...] = ()
        self._bindings: dict[str, list[_Binding]] = {}

    def allowed(self, asked: Attributes) -> tuple[bool, str]:
        """Whether it is allowed, and by what."""
        if MASTERS in asked.user.groups:
            return True, ""
        for binding in self._applying(asked.user, asked.namespace):
            if any(rule.allows(asked) for rule in binding.rules):
                return True, binding.why
        return False, ""

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """All that a user may do in a namespace."""
        if MASTERS in user.groups:
            every = frozenset({"*"})
            return [
                Rule(every, every, every, frozenset(), ()),
                Rule(every, frozenset(), frozenset(), frozenset(), ("*",)),
            ]
        return [rule for binding in self._applying(user, namespace) for rule in binding.rules]

    def _applying(self, user: User, namespace: str) -> Iterator[_Binding]:
        bindings = self._current()
        scopes = ("", namespace) if namespace else ("",)
        for scope in scopes:
            for binding in bindings.get(scope, ()):
                if binding.applies(user):
                    yield binding

    def _current(self) -> dict[str, list[_Binding]]:
        """Bindings by namespace; those of the cluster are under the empty one."""
        stamp = tuple(self._store.collection(storage).revision for storage in _STORAGES)
        if stamp != self._read_at:
            self._bindings = self._read()
            self._read_at = stamp
        return self._bindings

    def _read(self) -> dict[str, list[_Binding]]:
        cluster_roles, cluster_bindings, roles, bindings = (
            [stored.decoded() for stored in self._store.collection(storage).listed(None)]
            for storage in _STORAGES
        )
        known = {
            ("", text(role, "metadata", "name")): rules_of(role, cluster_roles) for role in cluster_roles
        }
        for role in roles:
            known[text(role, "metadata", "namespace"), text(role, "metadata", "name")] = rules_of(role)
        found: dict[str, list[_Binding]] = {}
        for binding in [*cluster_bindings, *bindings]:
            namespace = text(binding, "metadata", "namespace")
            found.setdefault(namespace, []).append(_binding(binding, namespace, known))
        return found


def rules_of(role: Json, cluster_roles: Iterable[Json] = ()) -> tuple[Rule, ...]:
    """The rules of a role, with those that it aggregates."""
    raw = parts(role, "rules")
    for selector in parts(role, "aggregationRule", "clusterRoleSelectors"):
        wanted = selector_from(selector)
        for other in cluster_roles:
            if other is not role and wanted.matches(labels_of(other, "metadata", "labels")):
                raw = [*raw, *parts(other, "rules")]
    return tuple(
        Rule(
            frozenset(strings(rule, "verbs")),
            frozenset(strings(rule, "apiGroups")),
            frozenset(strings(rule, "resources")),
            frozenset(strings(rule, "resourceNames")),
            tuple(strings(rule, "nonResourceURLs")),
        )
        for rule in raw
    )


def _binding(binding: Json, namespace: str, known: dict[tuple[str, str], tuple[Rule, ...]]) -> _Binding:
    users, groups = set(), set()
    for subject in parts(binding, "subjects"):
        name = text(subject, "name")
        match text(subject, "kind"):
            case "User":
                users.add(name)
            case "Group":
                groups.add(name)
            case "ServiceAccount":
                users.add(f"system:serviceaccount:{text(subject, 'namespace') or namespace}:{name}")
    reference = part(binding, "roleRef")
    kind, role = text(reference, "kind"), text(reference, "name")
    rules = known.get(("" if kind == "ClusterRole" else namespace, role), ())
    own = text(binding, "metadata", "name")
    shown = f'RoleBinding "{own}/{namespace}"' if namespace else f'ClusterRoleBinding "{own}"'
    who = next((s for s in parts(binding, "subjects")), {})
    subject_text = f'{text(who, "kind")} "{text(who, "name")}"'
    return _Binding(
        frozenset(users),
        frozenset(groups),
        rules,
        f'RBAC: allowed by {shown} of {kind} "{role}" to {subject_text}',
    )


def asked_of(request: Request, target: Target | None, verb: str) -> Attributes:
    """What a request asks for."""
    if target is None:
        return Attributes(request.user, _PATH_VERBS.get(request.method, "get"), path=request.path)
    name = target.name
    if verb in ("list", "watch", "deletecollection"):
        name = _pinned_name(request.parameter("fieldSelector")) or name
    return Attributes(
        request.user, verb, target.group, target.plural, target.subresource, name, target.namespace
    )


def _pinned_name(selector: str) -> str | None:
    """The name that a field selector pins, for rules that name objects."""
    try:
        return parse_fields(selector).exact("metadata.name") if selector else None
    except SelectorError:
        return None


_PATH_VERBS = {"POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete", "HEAD": "head"}


def denied(asked: Attributes) -> StatusError:
    """403, worded as Kubernetes words it."""
    user = asked.user.name
    if asked.path:
        message = f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"'
        return StatusError(403, "Forbidden", message, {})
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    shown = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f'{shown} "{asked.name}"' if asked.name else shown
    message = (
        f'{named} is forbidden: User "{user}" cannot {asked.verb} resource "{resource}" '
        f'in API group "{asked.group}" {where}'
    )
    details: Json = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
