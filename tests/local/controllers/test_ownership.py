from datetime import UTC, datetime

import pytest

from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.local.controllers.api_types import LabelSelector, Pod
from argosy.local.controllers.ownership import resolve_ownership

GONE = datetime(2026, 1, 1, tzinfo=UTC)
OURS, OTHER = (OwnerReference(uid=uid, controller=True) for uid in ("me", "other"))
MATCH = {"app": "a"}


def pod(*owners: OwnerReference, deleted: bool = False, **labels: str) -> Pod:
    return Pod(
        ObjectMeta(labels=labels, owner_references=[*owners], deletion_timestamp=GONE if deleted else None)
    )


CASES = {
    "owned and selected: kept": (pod(OURS, app="a"), "held"),
    "owned and no longer selected: released": (pod(OURS, app="b"), "release"),
    "selected without a controller: adopted": (pod(app="a"), "adopt"),
    "selected with an owner that is not its controller: adopted": (
        pod(OwnerReference(uid="x"), app="a"),
        "adopt",
    ),
    "selected and terminating: not adopted": (pod(app="a", deleted=True), ""),
    "selected with another controller: ignored": (pod(OTHER, app="a"), ""),
    "not selected: ignored": (pod(app="b"), ""),
}


@pytest.mark.parametrize(("pod", "wanted"), CASES.values(), ids=CASES)
def test_ownership(pod: Pod, wanted: str) -> None:
    ownership = resolve_ownership(ObjectMeta(uid="me"), LabelSelector(MATCH), [pod])
    assert {"held": ownership.owned, "adopt": ownership.to_adopt, "release": ownership.to_release} == {
        name: [pod] if name == wanted else [] for name in ("held", "adopt", "release")
    }


def test_an_owner_being_deleted_adopts_nothing() -> None:
    owner = ObjectMeta(uid="me", deletion_timestamp=GONE)
    held = pod(OURS, app="a")
    ownership = resolve_ownership(owner, LabelSelector(MATCH), [held, pod(app="a"), pod(OURS, app="b")])
    assert (ownership.owned, ownership.to_adopt, ownership.to_release) == ([held], [], [])
