"""The CheckpointBackups of a StatefulMigration: one for each pod and cluster."""

from collections.abc import Collection, Sequence

import msgspec

from argosy.checkpoint.image_names import InvalidImageNameError, parse_image
from argosy.dialects.migration.targets import MigratedPod
from argosy.kinds.migration import MEMBER_CLUSTER, CheckpointBackup, StatefulMigration
from argosy.kinds.text import shorten, text_hash
from argosy.plan.children import Child

MAX_NAME_CHARS, MAX_LABEL_CHARS, MAX_TAG_CHARS = 253, 63, 128

MIGRATION_LABEL, CLUSTER_LABEL, POD_LABEL = "stateful-migration", "target-cluster", "target-pod"
"""Labels of the CheckpointBackups."""


def backup_children(
    migration: StatefulMigration,
    pods: Sequence[MigratedPod],
    cluster: str,
    existing: Collection[str] = (),
    taken: Collection[str] = (),
    *,
    member: bool = False,
) -> list[Child]:
    """Return the backups of these pods.

    `existing` are the names of the backups that there are already, and `taken` those that other objects have:
    a backup whose name is taken, also by one of another pod, gets a name with a hash and keeps it. `member`:
    the cluster is a member of Karmada.
    """
    children: dict[str, Child] = {}
    for pod in pods:
        identity = f"{migration.metadata.name}/{pod.metadata.name}/{cluster}"
        plain = shorten(identity.replace("/", "-"), MAX_NAME_CHARS)
        unique = f"{shorten(plain, MAX_NAME_CHARS - 1 - len(text_hash(identity)))}-{text_hash(identity)}"
        name = unique if unique in existing or plain in taken or plain in children else plain
        children[name] = Child(CheckpointBackup, name, _body(migration, pod, cluster, member))
    return list(children.values())


def target_image(migration: StatefulMigration, pod: MigratedPod, container: str, image: str) -> str:
    """Return the image of a container's checkpoint, without the registry.

    It is named after the container's current image. The tag also has pod and container, so that replicas and
    containers of one image do not overwrite each other's checkpoints.
    """
    try:
        current = parse_image(image)
        name, tag = current.repository.path.rpartition("/")[2], current.tag or current.digest[7:19]
    except InvalidImageNameError:
        name, tag = container, "latest"
    tag = shorten(f"{tag}-{pod.metadata.name}-{container}", MAX_TAG_CHARS)
    return f"{migration.spec.registry.repository}/{name}:{tag}"


def _body(migration: StatefulMigration, pod: MigratedPod, cluster: str, member: bool) -> dict[str, object]:
    meta, spec = migration.metadata, migration.spec
    listed = {
        MIGRATION_LABEL: shorten(meta.name, MAX_LABEL_CHARS),
        CLUSTER_LABEL: shorten(cluster, MAX_LABEL_CHARS),
        POD_LABEL: shorten(pod.metadata.name, MAX_LABEL_CHARS),
    }
    containers = [
        {"name": item.name, "image": target_image(migration, pod, item.name, item.image)}
        for item in pod.spec.containers
    ]
    return {
        "metadata": {"labels": listed, **({"annotations": {MEMBER_CLUSTER: cluster}} if member else {})},
        "spec": {
            "schedule": spec.schedule,
            "podRef": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
            "resourceRef": msgspec.to_builtins(spec.resource_ref),
            "registry": msgspec.to_builtins(spec.registry),
            "containers": containers,
        },
    }
