"""Google Compute Engine: the body of a new instance, and what its statuses and operations mean.

The body is written by the published description of `instances.insert`; the join command is added to the
metadata by the driver when the request is sent.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from argosy.capacity.join import JoinPlan
from argosy.capacity.machine_record import MachineRecord, MachineSpec
from argosy.capacity.provider import Identity, ObservedMachine, ObservedOperation, OperationKind, Presence
from argosy.plan.children import Json

DRIVER: Final = "gce"

MANAGED_BY: Final = "managed-by"
MANAGER: Final = "argosy"
CLUSTER: Final = "argosy-cluster"
UID: Final = "argosy-uid"
"""Labels of instances."""

CLOUD_PLATFORM: Final = "https://www.googleapis.com/auth/cloud-platform"

MAX_LABEL_CHARS: Final = 63


class FindInstance(Struct, frozen=True):
    """`instances.get`."""

    project: str
    zone: str
    name: str


class InsertInstance(Struct, frozen=True):
    """`instances.insert`."""

    project: str
    zone: str
    name: str
    request_id: str
    body: Json
    """Without the metadata."""
    script: str
    join: JoinPlan


class DeleteInstance(Struct, frozen=True):
    """`instances.delete`."""

    project: str
    zone: str
    name: str
    request_id: str


class Gce:
    """Translates between machines and the requests of Compute Engine."""

    driver = DRIVER

    def scope(self, record: MachineRecord) -> str:
        return f"{record.project}/{record.zone}"

    def find(self, record: MachineRecord) -> FindInstance:
        return FindInstance(record.project, record.zone, record.name)

    def create(
        self, record: MachineRecord, spec: MachineSpec, identity: Identity, join: JoinPlan
    ) -> InsertInstance:
        body = instance_body(record.name, record.zone, spec, spot=record.spot, labels=_labels(identity))
        request_id = record.request_id(identity.uid)
        return InsertInstance(
            record.project, record.zone, record.name, request_id, body, spec.startup_script, join
        )

    def delete(self, record: MachineRecord, uid: str) -> DeleteInstance:
        return DeleteInstance(record.project, record.zone, record.name, record.request_id(uid, "delete"))


def instance_body(
    name: str, zone: str, spec: MachineSpec, *, spot: bool, labels: Mapping[str, str]
) -> dict[str, object]:
    """Return the body of `instances.insert`, without the metadata."""
    network: dict[str, object] = {}
    if spec.external_ip:
        network["accessConfigs"] = [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]
    body: dict[str, object] = {
        "name": name,
        "machineType": f"zones/{zone}/machineTypes/{spec.machine_type}",
        "scheduling": _scheduling(spot=spot),
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": spec.image,
                    "diskSizeGb": str(spec.disk_size_gb),
                    "diskType": f"zones/{zone}/diskTypes/{spec.disk_type}",
                },
            }
        ],
        "networkInterfaces": [network],
        "labels": dict(labels),
    }
    if spec.gpu is not None:
        accelerator = f"zones/{zone}/acceleratorTypes/{spec.gpu.type}"
        body["guestAccelerators"] = [{"acceleratorCount": spec.gpu.count, "acceleratorType": accelerator}]
    if spec.network_tags:
        body["tags"] = {"items": list(spec.network_tags)}
    if spec.service_account:
        body["serviceAccounts"] = [{"email": spec.service_account, "scopes": [CLOUD_PLATFORM]}]
    return body


def _scheduling(*, spot: bool) -> dict[str, object]:
    common: dict[str, object] = {"automaticRestart": False, "onHostMaintenance": "TERMINATE"}
    if not spot:
        return {"provisioningModel": "STANDARD", "preemptible": False, **common}
    return {
        "provisioningModel": "SPOT",
        "preemptible": True,
        "instanceTerminationAction": "DELETE",
        **common,
    }


def _labels(identity: Identity) -> dict[str, str]:
    labels = {MANAGED_BY: MANAGER, **identity.labels, CLUSTER: identity.cluster, UID: identity.uid}
    return {key: label_value(value) for key, value in labels.items() if value}


def label_value(text: str) -> str:
    """Return a text as GCE allows it in labels: lower case letters, digits, `_` and `-`."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:MAX_LABEL_CHARS]


PRESENCES: Final[Mapping[str, Presence]] = {
    "PROVISIONING": Presence.PENDING,
    "STAGING": Presence.PENDING,
    "PENDING": Presence.PENDING,
    "RUNNING": Presence.RUNNING,
    "PENDING_STOP": Presence.NOTICED,
    "STOPPING": Presence.LOST,
    "STOPPED": Presence.LOST,
    "TERMINATED": Presence.LOST,
    "DEPROVISIONING": Presence.LOST,
    "SUSPENDING": Presence.SUSPENDED,
    "SUSPENDED": Presence.SUSPENDED,
    "REPAIRING": Presence.SUSPENDED,
}
"""What the statuses of instances mean; one that is not listed holds its place."""

_KINDS: Final[Mapping[str, OperationKind]] = {
    "insert": OperationKind.INSERT,
    "delete": OperationKind.DELETE,
    "stop": OperationKind.STOP,
    "compute.instances.preempted": OperationKind.PREEMPTED,
    "compute.instances.hostError": OperationKind.HOST_ERROR,
    "compute.instances.terminateOnHostMaintenance": OperationKind.MAINTENANCE,
}


def observed_machine(instance: Mapping[str, object]) -> ObservedMachine:
    """Return an instance of the API in the form that all providers share; invalid fields count as missing."""
    status = _text(instance.get("status"))
    interface = _first(instance.get("networkInterfaces"))
    labels = _mapping(instance.get("labels"))
    return ObservedMachine(
        name=_text(instance.get("name")),
        status=status,
        presence=PRESENCES.get(status, Presence.PENDING),
        id=_text(instance.get("id")),
        zone=_text(instance.get("zone")).rpartition("/")[2],
        internal_ip=_text(interface.get("networkIP")),
        external_ip=_text(_first(interface.get("accessConfigs")).get("natIP")),
        created=parse_time(instance.get("creationTimestamp")),
        uid=_text(labels.get(UID)),
        cluster=_text(labels.get(CLUSTER)),
        is_stopped=status in ("STOPPED", "TERMINATED"),
    )


def observed_operation(operation: Mapping[str, object]) -> ObservedOperation:
    """Return an operation of the API in the form that all providers share."""
    error = _first(_mapping(operation.get("error")).get("errors"))
    code = _text(error.get("code"))
    return ObservedOperation(
        id=_text(operation.get("name")),
        kind=_KINDS.get(_text(operation.get("operationType")), OperationKind.OTHER),
        machine=_text(operation.get("targetLink")).rpartition("/")[2],
        request_id=_text(operation.get("clientOperationId")),
        done=operation.get("status") == "DONE",
        code=code or ("UNKNOWN" if operation.get("error") else ""),
        message=_text(error.get("message")),
        at=parse_time(operation.get("insertTime")),
    )


def parse_time(value: object) -> datetime | None:
    """Return a time of the API; None if it is missing or not one."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo is not None else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _first(value: object) -> Mapping[str, object]:
    return _mapping(value[0]) if isinstance(value, list) and value else {}
