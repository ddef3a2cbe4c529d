"""Steps that create a CustomResourceDefinition and wait until it is served, once per case or shared by many.

kube-apiserver takes about a second to serve a new kind. Cases that begin with `DEFINED` and only read and
write resources in their own namespace therefore share one definition per server: `with_shared_definition`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.support.differential import Step, get, post
from tests.support.field_paths import Json
from tests.support.manifests import DEFINITIONS, WIDGETS, definition

DEFINED = (
    post(DEFINITIONS, definition(), shown=False),
    get(f"{DEFINITIONS}/widgets.$ns.example.com", until="status.conditions.1", shown=False),
    get(WIDGETS, until="metadata.resourceVersion", shown=False),
)
"""The kind Widget, in a group named after the namespace of the case."""

SHARED = "shared"
"""The namespace after which the group of the shared definition is named."""

_GROUP = "$ns.example.com"


def can_share_definition(steps: Sequence[Step]) -> bool:
    """True if the case begins with `DEFINED` and cannot notice or disturb other users of the definition."""
    if tuple(steps[: len(DEFINED)]) != DEFINED:
        return False
    paths = [step.path for step in steps[len(DEFINED) :]]
    return not any(
        DEFINITIONS in path or (f"/apis/{_GROUP}" in path and "/namespaces/$ns" not in path) for path in paths
    )


def with_shared_definition(steps: Sequence[Step]) -> list[Step]:
    """Return the steps after `DEFINED`, with the group of the shared definition."""
    return [
        replace(step, path=str(_in_shared_group(step.path)), body=_in_shared_group(step.body))
        for step in steps[len(DEFINED) :]
    ]


def _in_shared_group(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace(_GROUP, f"{SHARED}.example.com")
    if isinstance(value, Mapping):
        return {key: _in_shared_group(field) for key, field in value.items()}
    if isinstance(value, list | tuple):
        return [_in_shared_group(item) for item in value]
    return value
