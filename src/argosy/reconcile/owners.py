"""Finds what belongs to a job: by the namespace and the uid of the controller that an object names.

An object may name any uid as its owner, also that of a job in another namespace, and uids are no secrets.
Owners are of the same namespace by the rules of Kubernetes; an object that names one elsewhere belongs to
nobody.
"""

from collections.abc import Iterable

from argosy.engine.objects import ApiObject
from argosy.kinds.meta import ObjectMeta

OWNER = "owner"
"""The name of the index by owner, in every cache of children."""


def owner_key(namespace: str, uid: str) -> str:
    """Return the index key of the children of one job."""
    return f"{namespace}/{uid}"


def owner_keys(obj: ApiObject) -> Iterable[str]:
    """Return the keys under which a child is filed: that of its controller, if it names one."""
    metadata = obj.metadata
    owner = metadata.controller if isinstance(metadata, ObjectMeta) else None
    return (owner_key(metadata.namespace, owner.uid),) if owner else ()
