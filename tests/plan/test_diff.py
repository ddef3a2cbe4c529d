"""Tests for the difference between wanted and existing children."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMap, SecretMetadata
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import Action, Apply, Remove
from argosy.plan.children import Child
from argosy.plan.contract import Inputs
from argosy.plan.diff import changes

SETTINGS = Child(ConfigMap, "settings", {"data": {"a": "1"}})
KEY = Child(SecretMetadata, "key", {"immutable": True}, generator="random")


def existing(child: Child, *, digest: str = "", terminating: bool = False, version: str = "5") -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(
            name=child.name,
            uid=f"uid-{child.name}",
            resource_version=version,
            annotations={labels.DIGEST: digest or child.digest},
            deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if terminating else None,
        )
    )


def existing_key() -> SecretMetadata:
    return SecretMetadata(metadata=ObjectMeta(name="key", uid="uid-key"))


OTHER = existing(Child(ConfigMap, "other", {}))


@dataclass
class Case:
    inputs: Inputs
    wanted: tuple[Child, ...] = (SETTINGS,)
    prune: bool = False
    drift: bool = False
    want: list[Action] = field(default_factory=list)


CASES = {
    "no child: created": Case(Inputs(), want=[Apply(SETTINGS)]),
    "a child with the same digest: nothing": Case(Inputs((existing(SETTINGS),))),
    "a child with another digest: applied to this uid": Case(
        Inputs((existing(SETTINGS, digest="old"),)), want=[Apply(SETTINGS, "uid-settings")]
    ),
    "a child that is being deleted: waited for": Case(
        Inputs((existing(SETTINGS, digest="old", terminating=True),)), prune=True, drift=True
    ),
    "a generated child that is missing: created": Case(Inputs(), wanted=(KEY,), want=[Apply(KEY)]),
    "a generated child that exists: never changed": Case(
        Inputs((existing_key(),)), wanted=(KEY,), drift=True
    ),
    "an object of the same name and another kind: not the child": Case(
        Inputs((SecretMetadata(metadata=ObjectMeta(name="settings")),)), want=[Apply(SETTINGS)]
    ),
    "an unwanted child: kept": Case(Inputs((existing(SETTINGS), OTHER))),
    "an unwanted child with prune: removed": Case(
        Inputs((existing(SETTINGS), OTHER)), prune=True, want=[Remove(ConfigMap, "other", "uid-other")]
    ),
    "a child changed since our last write: kept": Case(
        Inputs((existing(SETTINGS),), written={"uid-settings": "4"})
    ),
    "a child changed since our last write with drift: applied": Case(
        Inputs((existing(SETTINGS),), written={"uid-settings": "4"}),
        drift=True,
        want=[Apply(SETTINGS, "uid-settings")],
    ),
    "a child as our last write left it with drift: nothing": Case(
        Inputs((existing(SETTINGS),), written={"uid-settings": "5"}), drift=True
    ),
    "a child of which no write is remembered with drift: applied once": Case(
        Inputs((existing(SETTINGS),)), drift=True, want=[Apply(SETTINGS, "uid-settings")]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_changes(case: Case) -> None:
    assert list(changes(case.wanted, case.inputs, prune=case.prune, drift=case.drift)) == case.want
