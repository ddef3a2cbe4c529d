"""Validates ResourceQuotas, and rejects those of anything but counts, which would have no effect."""

from collections.abc import Iterator

from argosy.local.schema.codec.quantity import value_of
from argosy.local.schema.errors import FieldError, forbidden, invalid, invalid_each
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map
from argosy.local.schema.validation.names import qualified_name_problems

COUNTED = frozenset(
    {
        "pods",
        "services",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
    }
)
"""Resources that a quota can count by their name alone."""
COUNT = "count/"
_AMOUNTS = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "services.nodeports",
    "services.loadbalancers",
)
_ONLY_COUNTS = "a local control plane limits counts of objects only: count/RESOURCE.GROUP, " + ", ".join(
    sorted(COUNTED)
)


def quota(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    yield from _amounts(get_map(spec, "hard"), "spec.hard")
    for name in get_map(spec, "hard"):
        if name not in COUNTED and not name.startswith(COUNT) and _is_resource(name):
            yield forbidden(f"spec.hard[{name}]", _ONLY_COUNTS)
    for field in ("scopes", "scopeSelector"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "a local control plane has no quotas for parts of a namespace")


def _is_resource(name: str) -> bool:
    return "/" in name or name in COUNTED or name in _AMOUNTS or "hugepages-" in name


def _amounts(amounts: Json, path: str) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        where = f"{path}[{name}]"
        yield from invalid_each(where, name, qualified_name_problems(name))
        if not _is_resource(name):
            yield invalid(where, name, "must be a standard resource type or fully qualified")
            yield invalid(where, name, "must be a standard resource for quota")
        if value_of(str(amount)) < 0:
            yield invalid(where, amount, "must be greater than or equal to 0")
        if name in COUNTED and value_of(str(amount)) % 1:
            yield invalid(where, amount, "must be an integer")
