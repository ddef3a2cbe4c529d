"""Backups of StatefulMigrations, by workload, pods and clusters."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.dialects.migration.backups import backup_children, target_image
from argosy.dialects.migration.karmada import PropagationPolicy
from argosy.dialects.migration.migration import TARGET_LABEL, MigrationReconciler
from argosy.dialects.migration.targets import (
    NAMESPACE_INDEX,
    Deployment,
    MigratedContainer,
    MigratedPod,
    MigratedPodSpec,
    Selector,
    StatefulSet,
    Target,
    WorkloadSpec,
)
from argosy.kinds.kubernetes import PodStatus
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import (
    CheckpointBackup,
    RegistryTarget,
    ResourceReference,
    StatefulMigration,
    StatefulMigrationSpec,
    StatefulMigrationStatus,
)
from argosy.kinds.status_condition import SecretReference
from argosy.plan.actions import Apply, Patch, Remove
from argosy.plan.contract import Decision, Inputs, Matching, Ref

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LABELS = {"app": "db"}
SPEC = StatefulMigrationSpec(
    resource_ref=ResourceReference("apps/v1", "StatefulSet", "db"),
    source_clusters=["here"],
    registry=RegistryTarget("registry.example", "team/db", SecretReference("login")),
    schedule="*/5 * * * *",
)
MIGRATION = StatefulMigration(ObjectMeta(name="move", namespace="prod", uid="m", generation=3), SPEC)


def pod(name: str, phase: str = "Running", **labels: str) -> MigratedPod:
    meta = ObjectMeta(name=name, namespace="prod", uid=f"uid-{name}", labels=labels or LABELS)
    spec = MigratedPodSpec([MigratedContainer("main", "docker.io/library/postgres:16")])
    return MigratedPod(meta, spec, PodStatus(phase=phase))


def workload(
    kind: type[StatefulSet] | type[Deployment] = StatefulSet, **labels: str
) -> StatefulSet | Deployment:
    meta = ObjectMeta(name="db", namespace="prod", uid="w", labels=labels)
    return kind(meta, WorkloadSpec(Selector(LABELS)))


def decide(
    migration: StatefulMigration = MIGRATION,
    target: Target | None = None,
    pods: Sequence[MigratedPod] = (),
    children: Sequence[CheckpointBackup] = (),
) -> Decision:
    reconciler = MigrationReconciler("here")
    needs = tuple(reconciler.needs(migration, None))
    found = {
        need: tuple(pods) if isinstance(need, Matching) else ((target,) if target else ())
        for need in needs
        if isinstance(need, Matching | Ref)
    }
    inputs = Inputs(children=tuple(children), found=found, unserved=frozenset({PropagationPolicy}))
    return reconciler.decide(migration, None, inputs, NOON)


def with_spec(**fields: object) -> StatefulMigration:
    return replace(MIGRATION, spec=replace(SPEC, **fields))


def ready(decision: Decision) -> tuple[str, str]:
    assert isinstance(decision.status, StatefulMigrationStatus)
    [condition] = decision.status.conditions
    assert decision.status.observed_generation == 3
    return condition.status, condition.reason


DAEMON_SET = ResourceReference("apps/v1", "DaemonSet", "db")
ELSEWHERE = ResourceReference("apps/v1", "StatefulSet", "db", "finance")

CASES = {
    "pods: backups": (decide(target=workload(), pods=[pod("db-0")]), ("True", "BackupsCreated")),
    "no replicas: ready without pods": (decide(target=workload()), ("True", "NoPods")),
    "pods of others only: ready without pods": (
        decide(target=workload(), pods=[pod("web-0", app="web")]),
        ("True", "NoPods"),
    ),
    "no workload: not found": (decide(), ("False", "ResourceNotFound")),
    "DaemonSet: not supported": (decide(with_spec(resource_ref=DAEMON_SET)), ("False", "UnsupportedKind")),
    "other cluster: unknown": (
        decide(with_spec(source_clusters=["here", "there"]), workload(), [pod("db-0")]),
        ("False", "ClusterUnknown"),
    ),
    "invalid schedule": (decide(with_spec(schedule="soon"), workload()), ("False", "InvalidSpec")),
    "invalid repository": (
        decide(with_spec(registry=RegistryTarget("registry.example", "Team")), workload()),
        ("False", "InvalidSpec"),
    ),
    "workload of another namespace: not allowed": (
        decide(with_spec(resource_ref=ELSEWHERE), workload()),
        ("False", "InvalidSpec"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_ready(case: str) -> None:
    decision, want = CASES[case]
    assert ready(decision) == want
    assert decision.requeue_at == NOON + timedelta(minutes=5)


def applied(decision: Decision) -> list[Apply]:
    return [action for action in decision.actions if isinstance(action, Apply)]


def test_backup_has_the_migration_s_schedule_and_registry() -> None:
    decision = decide(target=workload(), pods=[pod("db-1"), pod("db-0"), pod("db-2", "Succeeded")])
    first, second = applied(decision)
    assert [first.child.name, second.child.name] == ["move-db-0-here", "move-db-1-here"]
    assert first.child.body == {
        "metadata": {
            "labels": {"stateful-migration": "move", "target-cluster": "here", "target-pod": "db-0"}
        },
        "spec": {
            "schedule": "*/5 * * * *",
            "podRef": {"name": "db-0", "namespace": "prod"},
            "resourceRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"},
            "registry": {
                "url": "registry.example",
                "repository": "team/db",
                "secretRef": {"name": "login"},
            },
            "containers": [{"name": "main", "image": "team/db/postgres:16-db-0-main"}],
        },
    }
    assert getattr(decision.status, "backup_count", 0) == 2


def test_local_part_is_done_although_other_clusters_are_unknown() -> None:
    decision = decide(with_spec(source_clusters=["there", "here"]), workload(), [pod("db-0")])
    assert [action.child.name for action in applied(decision)] == ["move-db-0-here"]
    elsewhere = decide(with_spec(source_clusters=["there"]), workload(), [pod("db-0")])
    assert applied(elsewhere) == []


@pytest.mark.parametrize("kind", ["Deployment", "deployment", "Pod"])
def test_other_kinds_in_any_case(kind: str) -> None:
    target: Target = pod("db") if kind == "Pod" else workload(Deployment)
    pods = [pod("db"), pod("db-x")] if kind == "Pod" else [pod("db-x")]
    decision = decide(with_spec(resource_ref=ResourceReference("v1", kind, "db")), target, pods)
    want = "move-db-here" if kind == "Pod" else "move-db-x-here"
    assert [action.child.name for action in applied(decision)] == [want]


def test_workload_is_labelled_once_and_the_label_removed_at_the_end() -> None:
    [patch] = [action for action in decide(target=workload()).actions if isinstance(action, Patch)]
    assert (patch.kind, patch.name, patch.uid) == (StatefulSet, "db", "w")
    assert patch.patch == {"metadata": {"labels": {TARGET_LABEL: "true"}}}
    labelled = workload(StatefulSet, **{TARGET_LABEL: "true"})
    assert decide(target=labelled).actions == ()
    deleted = replace(MIGRATION, metadata=replace(MIGRATION.metadata, deletion_timestamp=NOON))
    decision = decide(deleted, labelled)
    assert decision.released
    [undo] = decision.actions
    assert isinstance(undo, Patch)
    assert undo.patch == {"metadata": {"labels": {TARGET_LABEL: None}}}
    assert decide(deleted).released


def test_migration_that_names_another_namespace_changes_nothing_there_when_it_is_deleted() -> None:
    other = replace(SPEC.resource_ref, namespace="prod")
    meta = replace(MIGRATION.metadata, namespace="hostile", deletion_timestamp=NOON)
    deleted = replace(MIGRATION, metadata=meta, spec=replace(SPEC, resource_ref=other))
    decision = decide(deleted, workload(StatefulSet, **{TARGET_LABEL: "true"}))
    assert (decision.actions, decision.released) == ((), True)


def test_backup_of_a_pod_that_is_gone_is_removed() -> None:
    old = CheckpointBackup(ObjectMeta(name="move-db-9-here", uid="old"))
    decision = decide(target=workload(), pods=[pod("db-0")], children=[old])
    assert [action.name for action in decision.actions if isinstance(action, Remove)] == ["move-db-9-here"]
    # While the workload itself is not found, nothing is known about its pods.
    assert decide(children=[old]).actions == ()


def test_names_that_would_be_the_same_differ_by_a_hash() -> None:
    move = replace(MIGRATION, metadata=replace(MIGRATION.metadata, name="m"))
    taken = backup_children(move, [pod("a")], "here", taken=["m-a-here"])
    [child] = taken
    assert child.name.startswith("m-a-here-")
    [kept] = backup_children(move, [pod("a")], "here", existing=[child.name])
    assert kept.name == child.name
    long = backup_children(move, [pod("a" * 200), pod("a" * 200 + "b")], "c" * 100)
    assert len({item.name for item in long}) == 2
    assert all(len(item.name) <= 253 for item in long)
    labels = [item.body["metadata"] for item in long]
    assert all(
        len(value) <= 63 for item in labels if isinstance(item, dict) for value in item["labels"].values()
    )


IMAGES = {
    "tag": ("gcr.io/project/train:v1", "team/db/train:v1-p-main"),
    "no tag: latest": ("train", "team/db/train:latest-p-main"),
    "digest: its beginning": (f"train@sha256:{'a' * 64}", "team/db/train:aaaaaaaaaaaa-p-main"),
    "name that cannot be read: the container's": ("???", "team/db/main:latest-p-main"),
}


@pytest.mark.parametrize("case", IMAGES)
def test_image_is_named_after_the_current_one(case: str) -> None:
    image, want = IMAGES[case]
    assert target_image(MIGRATION, pod("p"), "main", image) == want


def test_pods_are_looked_for_in_the_namespace_of_the_workload() -> None:
    trusted = replace(MIGRATION, metadata=replace(MIGRATION.metadata, namespace="stateful-migration"))
    trusted = replace(trusted, spec=replace(SPEC, resource_ref=replace(ELSEWHERE)))
    needs = tuple(MigrationReconciler("here").needs(trusted, None))
    assert Matching(MigratedPod, NAMESPACE_INDEX, "finance") in needs
    assert ready(decide(trusted, workload(), [pod("db-0")])) == ("True", "BackupsCreated")
