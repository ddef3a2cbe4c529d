"""PersistentVolumeClaims as a controller binds them and the nodes read them. Partial: never written back."""

from typing import ClassVar, Final

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

PROTECTION: Final = "kubernetes.io/pvc-protection"
"""The finalizer that keeps a claim while a pod uses it."""


class ClaimResources(Struct):
    requests: dict[str, str | int] = field(default_factory=dict)


class ClaimSpec(Struct, rename="camel"):
    access_modes: list[str] = field(default_factory=list)
    resources: ClaimResources = field(default_factory=ClaimResources)
    volume_mode: str = "Filesystem"


class ClaimStatus(Struct):
    phase: str = "Pending"


class PersistentVolumeClaim(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

    metadata: ObjectMeta
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)
