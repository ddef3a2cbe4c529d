"""Plays stateful-migration-operator: the agent that completes CheckpointBackups, and its definition of them.

The agent pushes images, and writes only what that definition has: the phase, the images, and the time.
"""

import asyncio
import copy
import json
from datetime import UTC, datetime
from typing import NamedTuple, cast

from argosy.kinds.crd import crd_for
from argosy.kinds.migration import CheckpointBackup
from tests.support.local_control_plane import ControlPlane
from tests.support.registry import RunningRegistry, push_image
from tests.support.spot_jobs import Json

OWN_STATUS_FIELDS = frozenset(
    {"completionTime", "nodeName", "sourcePodUID", "digests", "checkpointedPodTemplate", "size"}
)
"""Fields that only our definition has."""


class GoodBackup(NamedTuple):
    """A checkpoint that was completed."""

    time: str
    image: str
    """Without the registry."""


def upstream_crd() -> Json:
    """Return the definition of CheckpointBackups as upstream has it."""
    crd = copy.deepcopy(crd_for(CheckpointBackup))
    cast("Json", crd["metadata"]).pop("labels", None)
    for version in cast("list[Json]", cast("Json", crd["spec"])["versions"]):
        version.pop("additionalPrinterColumns", None)
        schema = cast("Json", cast("Json", version["schema"])["openAPIV3Schema"])
        properties = cast("Json", cast("Json", cast("Json", schema["properties"])["status"])["properties"])
        for field in OWN_STATUS_FIELDS:
            properties.pop(field, None)  # both versions may share a schema
    return crd


def backups(plane: ControlPlane) -> list[Json]:
    return cast("list[Json]", plane.get("checkpointbackups")["items"])


def complete_backup(plane: ControlPlane, registry: RunningRegistry) -> bool:
    """Complete a backup that is not begun; return False if there is none."""
    begun = (backup for backup in backups(plane) if not cast("Json", backup.get("status", {})).get("phase"))
    backup = next(begun, None)
    if backup is None:
        return False
    containers = cast("list[Json]", cast("Json", backup["spec"])["containers"])
    for container in containers:
        asyncio.run(push_image(registry.address, str(container["image"])))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    built = [
        {"containerName": c["name"], "imageName": c["image"], "buildTime": now, "pushed": True}
        for c in containers
    ]
    patch = {"status": {"phase": "Completed", "builtImages": built, "lastCheckpointTime": now}}
    name = str(cast("Json", backup["metadata"])["name"])
    plane.kubectl(
        *("patch", "checkpointbackup", name, "--subresource=status", "--type=merge"),
        *("-p", json.dumps(patch)),
    )
    return True


def good_backups(plane: ControlPlane) -> set[GoodBackup]:
    """Return the completed backups."""
    found: set[GoodBackup] = set()
    for backup in backups(plane):
        status = cast("Json", backup.get("status", {}))
        if status.get("phase") == "Completed":
            image = cast("list[Json]", status["builtImages"])[0]["imageName"]
            found.add(GoodBackup(str(status["lastCheckpointTime"]), str(image)))
    return found
