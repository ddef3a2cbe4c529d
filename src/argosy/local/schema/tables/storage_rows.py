"""The rows of storage kinds in tables."""

from collections.abc import Sequence
from datetime import datetime

from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import created, default_name, name
from argosy.local.schema.unstructured import part, text, texts

_MODES = (
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
)


def _access_modes(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _MODES if mode in modes)


def _phase(item: Json) -> str:
    return "Terminating" if part(item, "metadata").get("deletionTimestamp") else text(item, "status", "phase")


def volume(item: Json, now: datetime) -> list[object]:
    spec = part(item, "spec")
    claim = part(spec, "claimRef")
    return [
        name(item),
        str(part(spec, "capacity").get("storage", "0")),
        _access_modes(texts(spec, "accessModes")),
        text(spec, "persistentVolumeReclaimPolicy"),
        _phase(item),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        text(spec, "storageClassName"),
        text(spec, "volumeAttributesClassName") or "<unset>",
        text(item, "status", "reason"),
        created(item, now),
        text(spec, "volumeMode") or "<unset>",
    ]


def claim(item: Json, now: datetime) -> list[object]:
    spec, status = part(item, "spec"), part(item, "status")
    bound = bool(spec.get("volumeName"))
    return [
        name(item),
        _phase(item),
        text(spec, "volumeName"),
        str(part(status, "capacity").get("storage", "0")) if bound else "",
        _access_modes(texts(status, "accessModes")) if bound else "",
        text(spec, "storageClassName"),
        text(spec, "volumeAttributesClassName") or "<unset>",
        created(item, now),
        text(spec, "volumeMode") or "<unset>",
    ]


def storage_class(item: Json, now: datetime) -> list[object]:
    return [
        default_name(item, "storageclass.kubernetes.io/is-default-class"),
        text(item, "provisioner"),
        text(item, "reclaimPolicy") or "Delete",
        text(item, "volumeBindingMode") or "Immediate",
        item.get("allowVolumeExpansion", False),
        created(item, now),
    ]
