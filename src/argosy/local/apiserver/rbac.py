"""May they: roles and bindings, evaluated as Kubernetes does. The group system:masters may do anything.

The bindings of a namespace are decoded when they change and filed by who they are for, so that a request
costs what its own user's bindings cost, however many others there are.
"""

from collections.abc import Iterable, Iterator

import msgspec

from argosy.local.apiserver.http import Request, User
from argosy.local.apiserver.policy_rules import Attributes, Rule, rules_of
from argosy.local.apiserver.requestinfo import Target
from argosy.local.apiserver.status import StatusError
from argosy.local.apiserver.store import Store
from argosy.local.schema.model import Json
from argosy.local.schema.selectors import SelectorError, parse_fields, parse_labels
from argosy.local.schema.unstructured import parts, text

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_ROLES_KEPT = 10_000


class RoleRef(msgspec.Struct, frozen=True):
    """The role of a binding; `namespace` is that of the binding, or empty for a cluster role."""

    kind: str
    namespace: str
    name: str

    @property
    def storage(self) -> str:
        return f"{self.kind.lower()}s.{GROUP}"


def role_of(binding: Json, namespace: str) -> RoleRef:
    kind = text(binding, "roleRef", "kind")
    return RoleRef(kind, "" if kind == "ClusterRole" else namespace, text(binding, "roleRef", "name"))


class _Binding(msgspec.Struct, frozen=True):
    rv: int
    name: str
    namespace: str
    role: RoleRef
    subjects: tuple[tuple[str, str], ...]
    """Whom it is for, as the key to find it by and as it is told."""

    def why(self, key: str) -> str:
        subject = next(told for each, told in self.subjects if each == key)
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        return f'RBAC: allowed by {kind} "{name}" of {self.role.kind} "{self.role.name}" to {subject}'


class _Scope(msgspec.Struct):
    """The bindings of a namespace, or of the cluster."""

    revision: int = -1
    bindings: dict[str, _Binding] = {}
    by_subject: dict[str, list[_Binding]] = {}


class Authorizer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._scopes: dict[str, _Scope] = {}
        self._roles: dict[RoleRef, tuple[int, tuple[Rule, ...]]] = {}

    def allowed(self, asked: Attributes) -> tuple[bool, str]:
        """Whether it is allowed, and by what; or what kept it from being known."""
        if MASTERS in asked.user.groups:
            return True, ""
        problems: list[str] = []
        for binding, key in self._applying(asked.user, asked.namespace):
            rules = self.rules_of(binding.role)
            if rules is None:
                problems.append(_absent(binding.role))
            elif any(rule.allows(asked) for rule in rules):
                return True, binding.why(key)
        return False, f"RBAC: {together(problems)}" if problems else ""

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """All that a user may do in a namespace, and what kept it from being known."""
        found: list[Rule] = []
        problems: list[str] = []
        for binding, _ in self._applying(user, namespace):
            rules = self.rules_of(binding.role)
            if rules is None:
                problems.append(_absent(binding.role))
            else:
                found.extend(rules)
        return found, problems

    def rules_of(self, role: RoleRef) -> tuple[Rule, ...] | None:
        """The rules of a role; None when there is no such role."""
        stored = self._store.collection(role.storage).get(role.namespace, role.name)
        if stored is None:
            return None
        known = self._roles.get(role)
        if known is None or known[0] != stored.rv:
            if len(self._roles) >= _ROLES_KEPT:
                self._roles.clear()  # roles come and go with jobs
            known = self._roles[role] = (stored.rv, rules_of(stored.decoded()))
        return known[1]

    def _applying(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        """The bindings for a user, each once and with the subject that it is for."""
        keys = [f"u:{user.name}", *(f"g:{group}" for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            found = self._current(scope).by_subject
            seen: set[str] = set()
            for key in keys:
                for binding in found.get(key, ()):
                    if binding.name not in seen:
                        seen.add(binding.name)
                        yield binding, key

    def _current(self, namespace: str) -> _Scope:
        kind = "rolebindings" if namespace else "clusterrolebindings"
        collection = self._store.collection(f"{kind}.{GROUP}")
        scope = self._scopes.get(namespace)
        if scope is not None and scope.revision == collection.revision:
            return scope
        known = scope.bindings if scope is not None else {}
        bindings: dict[str, _Binding] = {}
        by_subject: dict[str, list[_Binding]] = {}
        for stored in collection.listed(namespace):
            old = known.get(stored.name)
            binding = old if old and old.rv == stored.rv else _binding(stored.decoded(), stored.rv)
            bindings[stored.name] = binding
            for key, _ in binding.subjects:
                by_subject.setdefault(key, []).append(binding)
        scope = _Scope(collection.revision, bindings, by_subject)
        if bindings:
            self._scopes[namespace] = scope
        else:
            self._scopes.pop(namespace, None)  # namespaces come and go
        return scope


def _binding(binding: Json, rv: int) -> _Binding:
    namespace = text(binding, "metadata", "namespace")
    return _Binding(
        rv,
        text(binding, "metadata", "name"),
        namespace,
        role_of(binding, namespace),
        tuple(_subjects(parts(binding, "subjects"), namespace)),
    )


def _subjects(subjects: Iterable[Json], namespace: str) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        kind, name = text(subject, "kind"), text(subject, "name")
        match kind:
            case "User":
                yield f"u:{name}", f'{kind} "{name}"'
            case "Group":
                yield f"g:{name}", f'{kind} "{name}"'
            case "ServiceAccount":
                where = text(subject, "namespace") or namespace
                yield f"u:system:serviceaccount:{where}:{name}", f'{kind} "{name}/{where}"'


def _absent(role: RoleRef) -> str:
    return f'{role.kind.lower()}.{GROUP} "{role.name}" not found'


def together(problems: list[str]) -> str:
    """Several errors as Go tells them in one."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def asked_of(request: Request, target: Target | None, verb: str) -> Attributes:
    """What a request asks for."""
    if target is None:
        return Attributes(request.user, _PATH_VERBS.get(request.method, "get"), path=request.path)
    name = target.name
    if verb in ("list", "watch"):
        name = _pinned_name(request) or name
    return Attributes(
        request.user, verb, target.group, target.plural, target.subresource, name, target.namespace
    )


def _pinned_name(request: Request) -> str | None:
    """The name that a field selector pins, for rules that name objects; none if an option cannot be read."""
    selector = request.parameter("fieldSelector")
    try:
        if not selector:
            return None
        parse_labels(request.parameter("labelSelector"))
        for option in ("limit", "timeoutSeconds"):
            request.integer(option)
        return parse_fields(selector).exact("metadata.name")
    except (SelectorError, StatusError):
        return None


_PATH_VERBS = {"POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete", "HEAD": "head"}


def denied(asked: Attributes, why: str = "") -> StatusError:
    """403, worded as Kubernetes words it."""
    user = asked.user.name
    told = f": {why}" if why else ""
    if asked.path:
        message = f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"{told}'
        return StatusError(403, "Forbidden", message, {})
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    shown = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f'{shown} "{asked.name}"' if asked.name else shown
    message = (
        f'{named} is forbidden: User "{user}" cannot {asked.verb} resource "{resource}" '
        f'in API group "{asked.group}" {where}{told}'
    )
    details: Json = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
