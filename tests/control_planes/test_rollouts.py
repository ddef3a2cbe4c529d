"""Tests that Deployments and ReplicaSets take the same steps as with the real controllers."""

import json
from itertools import product

import pytest

from tests.support.field_paths import dig
from tests.support.simulator import START_SECONDS

from .conftest import Json, Planes, normal

REVISION = "metadata.annotations.deployment~kubernetes~io/revision"
NEVER = {START_SECONDS: "100000"}
"""Pods with this annotation do not become ready."""


def deployment(replicas: int, image: str = "v1", notes: dict[str, str] | None = None, **spec: object) -> str:
    """A manifest; with notes, its pods have them."""
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": notes or {}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": template,
                **spec,
            },
        }
    )


def rolling(surge: int | str, unavailable: int | str) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def sets(items: list[Json]) -> object:
    """The ReplicaSets by revision: sizes, what they were computed from, and how they are doing."""
    prefix = "metadata.annotations.deployment~kubernetes~io/"
    return {
        str(dig(item, REVISION)): {
            "image": dig(item, "spec.template.spec.containers.0.image"),
            "size": dig(item, "spec.replicas"),
            "desired": dig(item, f"{prefix}desired-replicas"),
            "most": dig(item, f"{prefix}max-replicas"),
            "history": dig(item, f"{prefix}revision-history"),
            "cause": dig(item, "metadata.annotations.kubernetes~io/change-cause"),
            "minReadySeconds": dig(item, "spec.minReadySeconds"),
            "status": _status(item),
        }
        for item in items
    }


def deployments(items: list[Json]) -> object:
    return [(dig(item, "metadata.name"), dig(item, REVISION), _status(item)) for item in items]


def _status(item: Json) -> object:
    """The status without its times; conditions in the order of their types.

    How many steps a rollout takes is chance, and so is how often a set was written: the generation says only
    whether the last one was seen.
    """
    status = json.loads(normal(json.dumps(item["status"])))
    status["observedGeneration"] = status.get("observedGeneration") == dig(item, "metadata.generation")
    conditions = [
        {key: value for key, value in condition.items() if not key.startswith("last")}
        for condition in status.pop("conditions", [])
    ]
    return {**status, "conditions": sorted(conditions, key=lambda condition: str(condition["type"]))}


def settled(planes: Planes) -> object:
    """Deployments and sets, the same on both."""
    planes.settled("deployments", shown=deployments)
    return planes.settled("replicasets", shown=sets)


def test_deployment_is_rolled_out_and_back(planes: Planes) -> None:
    planes.same("create", "deployment", "web", "--image=v1", "--replicas=3")
    planes.rolled_out("web")
    settled(planes)
    planes.same("set", "image", "deployment/web", "v1=v2")
    planes.same("annotate", "deployment/web", "kubernetes.io/change-cause=the second")
    planes.rolled_out("web")
    settled(planes)
    planes.same("rollout", "history", "deployment/web")
    planes.same("rollout", "history", "deployment/web", "--revision=1")
    planes.same("rollout", "undo", "deployment/web")
    planes.rolled_out("web")
    settled(planes)
    planes.same("rollout", "undo", "deployment/web", "--to-revision=2")
    planes.rolled_out("web")
    planes.same("rollout", "undo", "deployment/web", "--to-revision=9", code=1)
    planes.same("rollout", "restart", "deployment/web")
    planes.rolled_out("web")
    assert len(settled(planes)) == 3  # type: ignore[arg-type]
    planes.same("rollout", "history", "deployment/web")
    planes.same("scale", "deployment/web", "--replicas=5")
    planes.rolled_out("web")
    settled(planes)
    planes.same("scale", "deployment/web", "--current-replicas=4", "--replicas=1", code=1)
    for kind in ("deployments", "replicasets"):  # names of sets, and so their order, are each server's own
        columns = "custom-columns=K:.kind,R:.status.replicas"
        planes.same("get", kind, "--sort-by=.status.replicas", "--no-headers", "-o", columns)
    planes.same("scale", "deployment/web", "--replicas=0")
    settled(planes)


@pytest.mark.long
def test_recreate_waits_until_the_last_old_pod_is_gone(planes: Planes) -> None:
    planes.same("apply", "-f", "-", stdin=deployment(3, strategy={"type": "Recreate"}))
    planes.rolled_out("web")
    planes.same("apply", "-f", "-", stdin=deployment(3, "v2", strategy={"type": "Recreate"}))
    planes.rolled_out("web")
    settled(planes)
    planes.same("apply", "-f", "-", stdin=deployment(2, "v1", strategy={"type": "Recreate"}))
    planes.rolled_out("web")
    settled(planes)


@pytest.mark.long
def test_paused_deployment_scales_and_does_not_roll_out(planes: Planes) -> None:
    planes.same("apply", "-f", "-", stdin=deployment(2))
    planes.rolled_out("web")
    planes.same("rollout", "pause", "deployment/web")
    planes.same("set", "image", "deployment/web", "c=v2")
    planes.same("scale", "deployment/web", "--replicas=4")
    settled(planes)
    planes.same("rollout", "undo", "deployment/web", code=1)
    planes.same("rollout", "pause", "deployment/web", code=1)
    planes.same("rollout", "resume", "deployment/web")
    planes.rolled_out("web")
    settled(planes)


@pytest.mark.long
def test_stalled_rollout_is_reported_and_can_be_undone(planes: Planes) -> None:
    planes.same("apply", "-f", "-", stdin=deployment(3, progressDeadlineSeconds=2))
    planes.rolled_out("web")
    planes.same("apply", "-f", "-", stdin=deployment(3, "v2", NEVER, progressDeadlineSeconds=2))
    planes.rolled_out("web", code=1)
    settled(planes)
    planes.same("rollout", "undo", "deployment/web")
    planes.rolled_out("web")
    settled(planes)


ROOM: list[tuple[int | str, int | str]] = [
    ("25%", "25%"),
    (1, 0),
    (0, 1),
    ("0%", "10%"),
    ("100%", "100%"),
    (3, 2),
    (20, "50%"),
]
LIMITS = [(replicas, *room) for replicas, room in product((1, 5, 10), ROOM)]


@pytest.mark.long
def test_rollout_with_unready_pods_stops_at_its_limits(planes: Planes) -> None:
    """A Deployment of each kind, in the middle of its rollout and scaled there, up and down."""

    def all_of(image: str, notes: dict[str, str] | None) -> str:
        items = [
            deployment(replicas, image, notes, strategy=rolling(surge, unavailable)).replace(
                '"web"', f'"w{chr(97 + index)}"'
            )
            for index, (replicas, surge, unavailable) in enumerate(LIMITS)
        ]
        return f'{{"apiVersion": "v1", "kind": "List", "items": [{", ".join(items)}]}}'

    def sizes(items: list[Json]) -> object:
        return sorted(
            (
                str(dig(item, "metadata.ownerReferences.0.name")),
                str(dig(item, "spec.template.spec.containers.0.image")),
                dig(item, "spec.replicas"),
                dig(item, "status.replicas"),
                dig(item, "status.availableReplicas"),
            )
            for item in items
        )

    def observed(items: list[Json]) -> object:
        return {dig(item, "metadata.generation") == dig(item, "status.observedGeneration") for item in items}

    planes.same("apply", "-f", "-", stdin=all_of("v1", None))
    planes.say("wait", "deployments", "--all", "--for=condition=Available", "--timeout=60s")
    planes.settled("replicasets", shown=sizes)
    planes.same("apply", "-f", "-", stdin=all_of("v2", NEVER))
    for size in (None, 12, 3):
        if size is not None:
            planes.say("scale", "deployments", "--all", f"--replicas={size}")
        planes.eventually("deployments", shown=observed, want={True})
        assert len(planes.settled("replicasets", shown=sizes)) == 2 * len(LIMITS)  # type: ignore[arg-type]


@pytest.mark.long
def test_old_revisions_are_deleted(planes: Planes) -> None:
    for image in ("v1", "v2", "v3"):
        planes.same("apply", "-f", "-", stdin=deployment(1, image, revisionHistoryLimit=1))
        planes.rolled_out("web")
    planes.eventually("replicasets", shown=len, want=2)
    settled(planes)


@pytest.mark.long
def test_orphaned_replica_sets_and_pods_are_adopted(planes: Planes) -> None:
    def owned(items: list[Json]) -> object:
        return [bool(dig(item, "metadata.ownerReferences.0.controller")) for item in items]

    planes.same("apply", "-f", "-", stdin=deployment(2))
    planes.rolled_out("web")
    planes.same("delete", "deployment/web", "--cascade=orphan")
    planes.eventually("replicasets", shown=owned, want=[False])
    planes.same("apply", "-f", "-", stdin=deployment(2))
    planes.eventually("replicasets", shown=owned, want=[True])
    planes.rolled_out("web")
    settled(planes)
    planes.say("delete", "replicasets", "--all", "--cascade=orphan")
    planes.eventually("pods", shown=lambda items: sorted(owned(items)), want=[True, True])  # type: ignore[call-overload]
    settled(planes)


def test_relabelled_pod_is_replaced(planes: Planes) -> None:
    planes.same("apply", "-f", "-", stdin=deployment(2))
    planes.rolled_out("web")
    for server in planes.servers:
        pods = planes.names(server, "pods")
        planes.only(server, "label", f"pod/{pods[0]}", "app=other", "--overwrite")
    planes.eventually("pods", shown=len, want=3)
    planes.rolled_out("web")
    settled(planes)
    planes.say("delete", "deployment/web")
    planes.eventually("pods", shown=len, want=1)


@pytest.mark.long
def test_pods_are_available_after_min_ready_seconds(planes: Planes) -> None:
    planes.same("apply", "-f", "-", stdin=deployment(2, minReadySeconds=2))
    planes.rolled_out("web")
    settled(planes)
    planes.same("apply", "-f", "-", stdin=deployment(2, minReadySeconds=0))
    settled(planes)
