"""Backups of StatefulMigrations in member clusters of Karmada, and the policies that place them."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from argosy.dialects.migration.backups import backup_children
from argosy.dialects.migration.karmada import PropagationPolicy, can_be_member, policy_child
from argosy.dialects.migration.migration import MigrationReconciler
from argosy.dialects.migration.targets import (
    Deployment,
    MigratedContainer,
    MigratedPod,
    MigratedPodSpec,
    Ordinals,
    PodTemplate,
    Selector,
    StatefulSet,
    Target,
    WorkloadSpec,
)
from argosy.kinds import labels
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import CheckpointBackup, ResourceReference, StatefulMigrationStatus
from argosy.plan.actions import ActionResult, ActionStatus, Apply, Remove
from argosy.plan.children import Child, KubernetesObject
from argosy.plan.contract import Decision, Inputs, Matching, Ref
from tests.dialects.migration.test_migration import LABELS, MIGRATION, NOON, pod, ready, with_spec


def database(replicas: int, start: int = 0) -> StatefulSet:
    spec = MigratedPodSpec([MigratedContainer("main", "postgres:16")])
    workload = WorkloadSpec(Selector(LABELS), replicas, Ordinals(start), PodTemplate(spec))
    return StatefulSet(ObjectMeta(name="db", namespace="prod", uid="w"), workload)


WEB = Deployment(ObjectMeta(name="db", namespace="prod", uid="w"), WorkloadSpec(Selector(LABELS), 3))


def decide(
    clusters: Sequence[str],
    target: Target,
    pods: Sequence[MigratedPod] = (),
    *,
    unserved: frozenset[type[KubernetesObject]] = frozenset(),
    **inputs: object,
) -> Decision:
    reference = ResourceReference("apps/v1", type(target).__name__, "db")
    migration = with_spec(source_clusters=list(clusters), resource_ref=reference)
    reconciler = MigrationReconciler("here")
    found = {
        need: tuple(pods) if isinstance(need, Matching) else (target,)
        for need in reconciler.needs(migration, None)
        if isinstance(need, Matching | Ref)
    }
    return reconciler.decide(migration, None, replace(Inputs(found=found, unserved=unserved), **inputs), NOON)


def applied(decision: Decision, kind: type[KubernetesObject]) -> list[Child]:
    actions = [action for action in decision.actions if isinstance(action, Apply)]
    return [action.child for action in actions if action.child.kind is kind]


def status(decision: Decision) -> StatefulMigrationStatus:
    assert isinstance(decision.status, StatefulMigrationStatus)
    return decision.status


ABSENT = frozenset[type[KubernetesObject]]({PropagationPolicy})
LONG = "a" * 49
CREATED, UNKNOWN = ("True", "BackupsCreated"), ("False", "ClusterUnknown")
CASES = {
    "pods that are here: the same in every cluster": (
        decide(["here", "far"], database(2), [pod("db-0")]),
        (CREATED, ["here", "far"], ["move-db-0-here", "move-db-0-far"]),
    ),
    "StatefulSet without pods here: its pods by number": (
        decide(["far", "near"], database(2, start=5)),
        (CREATED, ["far", "near"], [f"move-db-{n}-{c}" for c in ("far", "near") for n in (5, 6)]),
    ),
    "StatefulSet without pods here: none here": (
        decide(["here", "far"], database(1)),
        (CREATED, ["here", "far"], ["move-db-0-far"]),
    ),
    "StatefulSet of no replicas: no pods": (
        decide(["far"], database(0)),
        (("True", "NoPods"), ["far"], []),
    ),
    "Deployment without pods here: their names are not known": (
        decide(["far"], WEB),
        (("True", "NoPods"), ["far"], []),
    ),
    "cluster twice: once": (decide(["far", "far"], database(1)), (CREATED, ["far"], ["move-db-0-far"])),
    "name that no member has: unknown": (
        decide(["far", LONG, "Far"], database(1)),
        (UNKNOWN, ["far"], ["move-db-0-far"]),
    ),
    "no Karmada: this cluster only": (
        decide(["here", "far"], database(2), [pod("db-0")], unserved=ABSENT),
        (UNKNOWN, ["here"], ["move-db-0-here"]),
    ),
    "more replicas than are possible: nothing": (
        decide(["far"], database(2**31 - 1)),
        (("False", "InvalidSpec"), [], []),
    ),
    "more backups than are possible: nothing": (
        decide([f"c{n}" for n in range(11)], database(1000)),
        (("False", "InvalidSpec"), [], []),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_backups_and_policies_by_cluster(case: str) -> None:
    decision, (want_ready, want_served, want_backups) = CASES[case]
    assert ready(decision) == want_ready
    assert status(decision).served_clusters == want_served
    backups = [child.name for child in applied(decision, CheckpointBackup)]
    assert backups == want_backups
    assert status(decision).backup_count == len(backups)
    policies = [child.name for child in applied(decision, PropagationPolicy)]
    assert policies == [f"{name}-policy" for name in backups if not name.endswith("-here")]


def test_policy_places_its_backup_in_exactly_one_cluster() -> None:
    decision = decide(["here", "far"], database(1), [pod("db-0")])
    [policy] = applied(decision, PropagationPolicy)
    assert policy.body == {
        "spec": {
            "resourceSelectors": [
                {
                    "apiVersion": "migration.dcnlab.com/v1",
                    "kind": "CheckpointBackup",
                    "namespace": "prod",
                    "name": "move-db-0-far",
                }
            ],
            "placement": {"clusterAffinity": {"clusterNames": ["far"]}},
        }
    }
    here, far = (child.body["metadata"] for child in applied(decision, CheckpointBackup))
    assert isinstance(here, dict)
    assert isinstance(far, dict)
    assert "annotations" not in here
    assert far["annotations"] == {"argosy.dev/member-cluster": "far"}


def test_policy_is_deleted_with_its_backup_and_drift_is_put_back() -> None:
    def policy(name: str, uid: str) -> PropagationPolicy:
        want = policy_child(Child(CheckpointBackup, name.removesuffix("-policy"), {}), "prod", "far")
        notes = {labels.DIGEST: want.digest}
        return PropagationPolicy(ObjectMeta(name=name, uid=uid, generation=2, annotations=notes))

    [backup] = backup_children(MIGRATION, [pod("db-1")], "far", member=True)
    gone = CheckpointBackup(ObjectMeta(name=backup.name, uid="b1"))
    children = (gone, policy("move-db-0-far-policy", "p0"), policy("move-db-1-far-policy", "p1"))
    unchanged = decide(["far"], database(1), children=children, written={"p0": "generation 2"})
    removed = [action.name for action in unchanged.actions if isinstance(action, Remove)]
    assert removed == ["move-db-1-far", "move-db-1-far-policy"]
    assert applied(unchanged, PropagationPolicy) == []
    edited = decide(["far"], database(1), children=children, written={"p0": "generation 1"})
    assert [child.name for child in applied(edited, PropagationPolicy)] == ["move-db-0-far-policy"]


def test_backup_in_a_member_outlives_an_api_server_that_does_not_serve_karmada() -> None:
    def backup(cluster: str, uid: str) -> CheckpointBackup:
        notes = {"argosy.dev/member-cluster": cluster}
        return CheckpointBackup(ObjectMeta(name=f"move-db-0-{cluster}", uid=uid, annotations=notes))

    children = (backup("far", "b0"), backup("near", "b1"))
    decision = decide(["far"], database(1), children=children, unserved=ABSENT)
    removed = [action.name for action in decision.actions if isinstance(action, Remove)]
    assert removed == ["move-db-0-near"], "a cluster that the spec does not name any more"


FAILURES = {
    "policy forbidden": ("PropagationPolicy", ActionStatus.FORBIDDEN, ("False", "PolicyRejected")),
    "policy of somebody else": ("PropagationPolicy", ActionStatus.NAME_CONFLICT, ("False", "PolicyRejected")),
    "backup rejected": ("CheckpointBackup", ActionStatus.INVALID, ("False", "BackupRejected")),
    "backup of somebody else: another name": ("CheckpointBackup", ActionStatus.NAME_CONFLICT, CREATED),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_reported(case: str) -> None:
    kind, failed, want = FAILURES[case]
    result = ActionResult(kind, "move-db-0-far", failed, "denied")
    assert ready(decide(["far"], database(1), failures=(result,))) == want


def test_backups_of_different_clusters_never_share_a_name() -> None:
    decision = decide(["b-c", "c"], WEB, [pod("a"), pod("a-b")])
    backups = applied(decision, CheckpointBackup)
    names = {child.name for child in backups}
    assert len(names) == len(backups) == 4
    assert {"move-a-b-c", "move-a-b-b-c", "move-a-c"} < names
    assert len({child.name for child in applied(decision, PropagationPolicy)}) == 4


@pytest.mark.parametrize(
    ("name", "want"),
    [("member1", True), ("a" * 48, True), (LONG, False), ("A", False), ("-a", False), ("", False)],
)
def test_names_of_members(name: str, want: bool) -> None:
    assert can_be_member(name) is want


def test_copy_in_a_member_has_no_owner_and_is_no_template() -> None:
    meta = ObjectMeta(name="b", annotations={"argosy.dev/member-cluster": "far"})
    assert not CheckpointBackup(meta).is_template
