"""Drops duplicate owner references, with a warning."""

from argosy.local.apiserver.http import Request
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str


def drop_duplicate_owners(obj: Json, request: Request) -> None:
    """Keep the first of equal owner references."""
    owners = get_maps(obj, "metadata", "ownerReferences")
    kept: list[object] = []
    duplicates: list[str] = []
    for owner in owners:
        if owner in kept:
            duplicates.append(get_str(owner, "uid"))
        else:
            kept.append(owner)
    if not duplicates:
        return
    get_map(obj, "metadata")["ownerReferences"] = kept
    uids = ", ".join(duplicates)
    request.warnings.append(f".metadata.ownerReferences contains duplicate entries; duplicate UID(s): {uids}")
