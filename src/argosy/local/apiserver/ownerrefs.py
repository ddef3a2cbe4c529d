"""An owner is named once: the same reference a second time is dropped, with a warning."""

from argosy.local.apiserver.http import Request
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import part, parts, text

_TOLD = (
    "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; "
    "please fix your requests; duplicate UID(s) observed"
)


def name_owners_once(obj: Json, request: Request) -> None:
    """Drop references that are there already."""
    owners = parts(obj, "metadata", "ownerReferences")
    kept: list[object] = []
    doubled: list[str] = []
    for owner in owners:
        if owner in kept:
            doubled.append(text(owner, "uid"))
        else:
            kept.append(owner)
    if not doubled:
        return
    part(obj, "metadata")["ownerReferences"] = kept
    when = " after mutating admission happens" if request.method == "PATCH" else ""
    told = f".metadata.ownerReferences contains duplicate entries{when}; {_TOLD}: {', '.join(doubled)}"
    request.warnings.append(told)
