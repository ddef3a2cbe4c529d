"""Authorizes requests by RBAC. The group system:masters has all rights.

The bindings of a namespace are decoded when they change and indexed by subject, so that the cost of a request
depends only on the bindings of its user.
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
from argosy.local.schema.unstructured import get_maps, get_str

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_MAX_CACHED_ROLES = 10_000


class RoleRef(msgspec.Struct, frozen=True):
    """The role of a binding; `namespace` is that of the binding, or empty for a cluster role."""

    kind: str
    namespace: str
    name: str

    @property
    def storage(self) -> str:
        return f"{self.kind.lower()}s.{GROUP}"


def role_of(binding: Json, namespace: str) -> RoleRef:
    kind = get_str(binding, "roleRef", "kind")
    return RoleRef(kind, "" if kind == "ClusterRole" else namespace, get_str(binding, "roleRef", "name"))


class _Binding(msgspec.Struct, frozen=True):
    rv: int
    name: str
    namespace: str
    role: RoleRef
    subjects: tuple[tuple[str, str], ...]
    """The key of each subject in the index, and its text for messages."""

    def why(self, key: str) -> str:
        subject = next(description for subject_key, description in self.subjects if subject_key == key)
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

    def allowed(self, attributes: Attributes) -> tuple[bool, str]:
        """Return whether a request is allowed, and the binding that allows it or the missing roles."""
        if MASTERS in attributes.user.groups:
            return True, ""
        problems: list[str] = []
        for binding, key in self._applying(attributes.user, attributes.namespace):
            rules = self.rules_of(binding.role)
            if rules is None:
                problems.append(_absent(binding.role))
            elif any(rule.allows(attributes) for rule in rules):
                return True, binding.why(key)
        return False, f"RBAC: {together(problems)}" if problems else ""

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """Return the rules of a user in a namespace, and the roles that do not exist."""
        result: list[Rule] = []
        problems: list[str] = []
        for binding, _ in self._applying(user, namespace):
            rules = self.rules_of(binding.role)
            if rules is None:
                problems.append(_absent(binding.role))
            else:
                result.extend(rules)
        return result, problems

    def rules_of(self, role: RoleRef) -> tuple[Rule, ...] | None:
        """Return the rules of a role; None if it does not exist."""
        stored = self._store.collection(role.storage).get(role.namespace, role.name)
        if stored is None:
            return None
        cached = self._roles.get(role)
        if cached is None or cached[0] != stored.rv:
            if len(self._roles) >= _MAX_CACHED_ROLES:
                self._roles.clear()  # jobs create and delete roles
            cached = self._roles[role] = (stored.rv, rules_of(stored.decoded()))
        return cached[1]

    def _applying(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        """Yield the bindings of a user, each once, with the key of the subject."""
        keys = [f"u:{user.name}", *(f"g:{group}" for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            by_subject = self._current(scope).by_subject
            names: set[str] = set()
            for key in keys:
                for binding in by_subject.get(key, ()):
                    if binding.name not in names:
                        names.add(binding.name)
                        yield binding, key

    def _current(self, namespace: str) -> _Scope:
        kind = "rolebindings" if namespace else "clusterrolebindings"
        collection = self._store.collection(f"{kind}.{GROUP}")
        scope = self._scopes.get(namespace)
        if scope is not None and scope.revision == collection.revision:
            return scope
        cached = scope.bindings if scope is not None else {}
        bindings: dict[str, _Binding] = {}
        by_subject: dict[str, list[_Binding]] = {}
        for stored in collection.listed(namespace):
            old = cached.get(stored.name)
            binding = old if old and old.rv == stored.rv else _binding(stored.decoded(), stored.rv)
            bindings[stored.name] = binding
            for key, _ in binding.subjects:
                by_subject.setdefault(key, []).append(binding)
        scope = _Scope(collection.revision, bindings, by_subject)
        if bindings:
            self._scopes[namespace] = scope
        else:
            self._scopes.pop(namespace, None)  # so that deleted namespaces do not accumulate
        return scope


def _binding(binding: Json, rv: int) -> _Binding:
    namespace = get_str(binding, "metadata", "namespace")
    return _Binding(
        rv,
        get_str(binding, "metadata", "name"),
        namespace,
        role_of(binding, namespace),
        tuple(_subjects(get_maps(binding, "subjects"), namespace)),
    )


def _subjects(subjects: Iterable[Json], namespace: str) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        kind, name = get_str(subject, "kind"), get_str(subject, "name")
        match kind:
            case "User":
                yield f"u:{name}", f'{kind} "{name}"'
            case "Group":
                yield f"g:{name}", f'{kind} "{name}"'
            case "ServiceAccount":
                where = get_str(subject, "namespace") or namespace
                yield f"u:system:serviceaccount:{where}:{name}", f'{kind} "{name}/{where}"'


def _absent(role: RoleRef) -> str:
    return f'{role.kind.lower()}.{GROUP} "{role.name}" not found'


def together(problems: list[str]) -> str:
    """Return several errors as one, in the format of Kubernetes."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def attributes_of(request: Request, target: Target | None, verb: str) -> Attributes:
    """Return the attributes of a request that rules refer to."""
    if target is None:
        return Attributes(request.user, _PATH_VERBS.get(request.method, "get"), path=request.path)
    name = target.name
    if verb in ("list", "watch"):
        name = _pinned_name(request) or name
    return Attributes(
        request.user, verb, target.group, target.plural, target.subresource, name, target.namespace
    )


def _pinned_name(request: Request) -> str | None:
    """Return the name that a field selector requires, for rules with resourceNames.

    None if there is none, or if an option is invalid.
    """
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


def denied(attributes: Attributes, why: str = "") -> StatusError:
    """Return the 403 response to a request that is not allowed."""
    user = attributes.user.name
    reason = f": {why}" if why else ""
    if attributes.path:
        message = f'forbidden: User "{user}" cannot {attributes.verb} path "{attributes.path}"{reason}'
        return StatusError(403, "Forbidden", message, {})
    resource = (
        f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    )
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    shown = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    named = f'{shown} "{attributes.name}"' if attributes.name else shown
    message = (
        f'{named} is forbidden: User "{user}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{attributes.group}" {where}{reason}'
    )
    details: Json = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
