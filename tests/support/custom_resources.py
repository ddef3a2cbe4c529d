"""Creates the CustomResourceDefinitions of kinds on an API server, and waits until they are served."""

import copy
from collections.abc import Iterable

from argosy.kinds.crd import crd_for
from argosy.kinds.crd_options import CustomResource
from tests.support.differential import Caller, get, post
from tests.support.field_paths import Json, dig

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(caller: Caller, kinds: Iterable[type[CustomResource]]) -> None:
    """Create the CRDs of kinds, unless they exist."""
    for kind in kinds:
        create_crd(caller, crd_for(kind))


def create_crd(caller: Caller, crd: dict[str, object]) -> None:
    """Create a CRD, unless it exists; its schema must be structural, and objects can be created then."""
    body: Json = copy.deepcopy(crd)
    answer = caller.send(post(CRDS, body))
    assert answer.code in (201, 409), answer.body
    established = caller.send(get(f"{CRDS}/{dig(body, 'metadata.name')}", until="status.conditions.1"))
    conditions = dig(established.body, "status.conditions")
    assert isinstance(conditions, list)
    assert "NonStructuralSchema" not in {str(dig(condition, "type")) for condition in conditions}
    group, version, plural = (
        dig(body, f"spec.{part}") for part in ("group", "versions.0.name", "names.plural")
    )
    caller.send(get(f"/apis/{group}/{version}/{plural}", until_code=200))
