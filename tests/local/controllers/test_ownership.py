from datetime import UTC, datetime

import pytest

from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.local.controllers.kinds import LabelSelector, Pod
from argosy.local.controllers.ownership import resolve_ownership

GONE = datetime(2026, 1, 1, tzinfo=UTC)
OURS, OTHER = (OwnerReference(uid=uid, controller=True) for uid in ("me", "other"))
MATCH = {"app": "a"}


def pod(*owners: OwnerReference, deleted: bool = False, **labels: str) -> Pod:
    return Pod(
        ObjectMeta(labels=labels, owner_references=[*owners], deletion_timestamp=GONE if deleted else None)
    )


CASES = {
    "its own that it selects is held": (pod(OURS, app="a"), "held"),
    "its own that it selects no more is released": (pod(OURS, app="b"), "release"),
    "one without a controller that it selects is adopted": (pod(app="a"), "adopt"),
    "one with an owner that is no controller is adopted": (pod(OwnerReference(uid="x"), app="a"), "adopt"),
    "one that is being deleted is not adopted": (pod(app="a", deleted=True), ""),
    "one of another controller is left alone": (pod(OTHER, app="a"), ""),
    "one that it does not select is left alone": (pod(app="b"), ""),
}


@pytest.mark.parametrize(("each", "wanted"), CASES.values(), ids=CASES)
def test_a_controller_claims(each: Pod, wanted: str) -> None:
    found = resolve_ownership(ObjectMeta(uid="me"), LabelSelector(MATCH), [each])
    assert {"held": found.owned, "adopt": found.to_adopt, "release": found.to_release} == {
        name: [each] if name == wanted else [] for name in ("held", "adopt", "release")
    }


def test_one_that_is_being_deleted_claims_nothing_more() -> None:
    owner = ObjectMeta(uid="me", deletion_timestamp=GONE)
    held = pod(OURS, app="a")
    found = resolve_ownership(owner, LabelSelector(MATCH), [held, pod(app="a"), pod(OURS, app="b")])
    assert (found.owned, found.to_adopt, found.to_release) == ([held], [], [])
