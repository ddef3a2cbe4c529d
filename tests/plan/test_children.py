"""Tests for the bodies and the ownership of children."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMap
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.plan.children import Child, Owner, child_body, version_of

OWNER = Owner("example.com/v1", "Toy", "home", "a", "uid-a", {"example.com/toy": "a"})


def test_a_body_names_its_owner_and_carries_its_labels_and_digest() -> None:
    child = Child(
        ConfigMap,
        "a-settings",
        {"metadata": {"labels": {"tier": "x"}, "annotations": {"note": "y"}}, "data": {"k": "v"}},
    )
    assert child_body(OWNER, child) == {
        "metadata": {
            "name": "a-settings",
            "namespace": "home",
            "labels": {
                "tier": "x",
                labels.MANAGED_BY: labels.MANAGER,
                "example.com/toy": "a",
                labels.UID: "uid-a",
            },
            "annotations": {"note": "y", labels.DIGEST: child.digest},
            "ownerReferences": [
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Toy",
                    "name": "a",
                    "uid": "uid-a",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "data": {"k": "v"},
    }


def test_a_body_cannot_claim_another_owner() -> None:
    child = Child(ConfigMap, "c", {"metadata": {"labels": {labels.UID: "uid-b"}, "namespace": "elsewhere"}})
    metadata = child_body(OWNER, child)["metadata"]
    assert isinstance(metadata, dict)
    assert (metadata["labels"][labels.UID], metadata["namespace"]) == ("uid-a", "home")


def test_a_digest_depends_on_content_and_not_on_the_order_of_keys() -> None:
    first = Child(ConfigMap, "c", {"data": {"a": "1", "b": "2"}})
    assert first.digest == Child(ConfigMap, "c", {"data": {"b": "2", "a": "1"}}).digest
    assert first.digest != Child(ConfigMap, "c", {"data": {"a": "1", "b": "3"}}).digest


def meta(**changes: object) -> ObjectMeta:
    ours = ObjectMeta(
        name="c",
        namespace="home",
        labels={labels.UID: "uid-a"},
        owner_references=[OwnerReference(uid="uid-a", controller=True)],
    )
    return replace(ours, **changes)


@dataclass
class Case:
    want: bool
    changes: dict[str, object] = field(default_factory=dict)


CASES = {
    "label and ownerReference in the owner's namespace: ours": Case(True),
    "a label that somebody removed: still ours": Case(True, {"labels": {}}),
    "the same uid in another namespace: forged": Case(False, {"namespace": "elsewhere"}),
    "a label without an ownerReference: forged": Case(False, {"owner_references": []}),
    "an owner that is not the controller: not ours": Case(
        False, {"owner_references": [OwnerReference(uid="uid-a")]}
    ),
    "another controller: not ours": Case(
        False, {"owner_references": [OwnerReference(uid="uid-b", controller=True)]}
    ),
    "a label that contradicts the ownerReference: not ours": Case(False, {"labels": {labels.UID: "uid-b"}}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_object_is_ours(case: Case) -> None:
    assert OWNER.owns(meta(**case.changes)) is case.want


def test_the_version_of_content_is_the_generation_where_the_kind_has_one() -> None:
    assert version_of(ObjectMeta(resource_version="9")) == "9"
    first, second = (ObjectMeta(resource_version=version, generation=3) for version in ("9", "10"))
    assert version_of(first) == version_of(second)
