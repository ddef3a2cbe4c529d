"""Indexes objects by their owner: namespace and uid of the controller in their ownerReferences.

An object may name any uid as its owner, also that of a job in another namespace, and uids are not secret. By
the rules of Kubernetes owners are in the same namespace, so the namespace is part of the key.
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
    """Return the index keys of a child: that of its controller, if it names one."""
    metadata = obj.metadata
    owner = metadata.controller if isinstance(metadata, ObjectMeta) else None
    return (owner_key(metadata.namespace, owner.uid),) if owner else ()
