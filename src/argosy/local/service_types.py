"""Services, EndpointSlices and PersistentVolumeClaims, as both the controllers and the nodes read them.

These structs are partial: never write a decoded object back. Optional fields of an EndpointSlice may be null,
because users may create their own.
"""

from typing import ClassVar, Final

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

PVC_PROTECTION_FINALIZER: Final = "kubernetes.io/pvc-protection"
"""The finalizer that keeps a PersistentVolumeClaim while a pod uses it."""


class ServicePort(Struct, rename="camel"):
    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str = 0
    app_protocol: str | None = None


class ServiceSpec(Struct, rename="camel"):
    selector: dict[str, str] = field(default_factory=dict)
    ports: list[ServicePort] = field(default_factory=list)
    type: str = "ClusterIP"
    cluster_ip: str = field(default="", name="clusterIP")
    external_name: str = ""
    publish_not_ready_addresses: bool = False


class Service(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Service", "services")

    metadata: ObjectMeta
    spec: ServiceSpec = field(default_factory=ServiceSpec)

    @property
    def is_headless(self) -> bool:
        """Whether it has no address of its own: an ExternalName Service has an empty clusterIP."""
        return self.spec.cluster_ip in ("", "None")


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ObjectReference(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Endpoint(Struct, rename="camel", frozen=True, omit_defaults=True):
    addresses: tuple[str, ...]
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = ""
    target_ref: ObjectReference | None = None
    node_name: str | None = ""
    zone: str | None = ""


class EndpointPort(Struct, rename="camel", frozen=True):
    name: str | None = ""
    port: int | None = None
    protocol: str | None = "TCP"
    app_protocol: str | None = None


class EndpointSlice(Struct, rename="camel"):
    resource: ClassVar[Resource] = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")

    metadata: ObjectMeta
    address_type: str = "IPv4"
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class PersistentVolumeClaimResources(Struct):
    requests: dict[str, str | int] = field(default_factory=dict)


class PersistentVolumeClaimSpec(Struct, rename="camel"):
    access_modes: list[str] = field(default_factory=list)
    resources: PersistentVolumeClaimResources = field(default_factory=PersistentVolumeClaimResources)
    volume_mode: str = "Filesystem"


class PersistentVolumeClaimStatus(Struct):
    phase: str = "Pending"


class PersistentVolumeClaim(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)
