"""Validates ResourceQuotas, and rejects those of anything but counts, which would have no effect."""

from collections.abc import Iterator

from argosy.local.schema.codec.quantity import value_of
from argosy.local.schema.errors import FieldError, forbidden, invalid, invalid_each
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map
from argosy.local.schema.validation.names import qualified_name_problems

COUNTED = frozenset(("configmaps", "persistentvolumeclaims", "pods", "resourcequotas", "secrets", "services"))
"""Resources that a quota can count by their name alone."""
COUNT = "count/"
_ONLY_COUNTS = "a local control plane limits counts of objects only: count/RESOURCE.GROUP, " + ", ".join(
    sorted(COUNTED)
)


def quota(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    for name, amount in get_map(spec, "hard").items():
        where = f"spec.hard[{name}]"
        yield from invalid_each(where, name, qualified_name_problems(name))
        if value_of(str(amount)) < 0:
            yield invalid(where, amount, "must be greater than or equal to 0")
        if name in COUNTED and value_of(str(amount)) % 1:
            yield invalid(where, amount, "must be an integer")
        if name not in COUNTED and not name.startswith(COUNT):
            yield forbidden(where, _ONLY_COUNTS)
    for field in ("scopes", "scopeSelector"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "a local control plane has no quotas for parts of a namespace")
