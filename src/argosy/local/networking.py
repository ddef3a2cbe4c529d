"""Services and endpoints as the controllers write them and the nodes read them.

Partial: never write a whole one back. What people may leave out of an EndpointSlice of their own may be null.
"""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource


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
    def headless(self) -> bool:
        return self.spec.cluster_ip in ("", "None")


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Endpoint(Struct, rename="camel", frozen=True, omit_defaults=True):
    addresses: tuple[str, ...]
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = ""
    target_ref: TargetRef | None = None
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
