"""Tests for deleting owners with foreground, background and orphan propagation."""

import json

import pytest

from tests.support.field_paths import dig

from .conftest import Json, Planes

KINDS = "deployments,replicasets,pods"
HOLD = json.dumps({"metadata": {"finalizers": ["example.com/hold"]}})
LET_GO = json.dumps({"metadata": {"finalizers": []}})


def finalizers(items: list[Json]) -> object:
    """The kinds that are there, with what holds them while they are being deleted."""
    return sorted(
        (
            str(item["kind"]),
            str(dig(item, "metadata.finalizers") if dig(item, "metadata.deletionTimestamp") else ""),
        )
        for item in items
    )


def test_foreground_deletion_waits_for_blocking_dependents(planes: Planes) -> None:
    planes.say("create", "deployment", "web", "--image=i")
    planes.rolled_out("web")
    for server in planes.servers:
        pod = planes.names(server, "pods")[0]
        planes.only(server, "patch", f"pod/{pod}", "--type=merge", f"--patch={HOLD}")
    planes.same("delete", "deployment/web", "--cascade=foreground", "--wait=false")
    planes.eventually(
        KINDS,
        shown=finalizers,
        want=[
            ("Deployment", "['foregroundDeletion']"),
            ("Pod", "['example.com/hold']"),
            ("ReplicaSet", "['foregroundDeletion']"),
        ],
    )
    for server in planes.servers:
        pod = planes.names(server, "pods")[0]
        planes.only(server, "patch", f"pod/{pod}", "--type=merge", f"--patch={LET_GO}")
    planes.eventually(KINDS, shown=finalizers, want=[])


@pytest.mark.long
def test_background_deletion_removes_the_owner_first(planes: Planes) -> None:
    planes.say("create", "deployment", "web", "--image=i", "--replicas=2")
    planes.rolled_out("web")
    planes.same("delete", "deployment/web")
    planes.eventually(KINDS, shown=finalizers, want=[])


@pytest.mark.long
def test_orphaned_dependents_are_kept(planes: Planes) -> None:
    planes.say("create", "job", "sum", "--image=i")
    planes.eventually("pods", shown=len, want=1)
    planes.same("delete", "job/sum", "--cascade=orphan")
    planes.eventually(
        "pods", shown=lambda items: [dig(i, "metadata.ownerReferences") for i in items], want=[None]
    )
    planes.eventually("pods", shown=lambda items: [dig(i, "metadata.finalizers") for i in items], want=[None])
