"""Nodes and pods as far as a node agent reads them; it caches those of its own node only."""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.kubernetes import Node, Pod, PodStatus, Taint
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource


class Address(Struct):
    type: str
    address: str


class NodeInfo(Struct, rename="camel"):
    architecture: str = ""
    container_runtime_version: str = ""


class Endpoint(Struct):
    port: int = field(default=10250, name="Port")


class DaemonEndpoints(Struct, rename="camel"):
    kubelet_endpoint: Endpoint = field(default_factory=Endpoint)


class NodeSpec(Struct):
    taints: list[Taint] = field(default_factory=list)
    provider_id: str = field(default="", name="providerID")


class NodeStatus(Struct, rename="camel"):
    allocatable: dict[str, str] = field(default_factory=dict)
    addresses: list[Address] = field(default_factory=list)
    node_info: NodeInfo = field(default_factory=NodeInfo)
    daemon_endpoints: DaemonEndpoints = field(default_factory=DaemonEndpoints)


class OwnNode(Struct):
    """The Node of this machine."""

    resource: ClassVar[Resource] = Node.resource

    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def internal_ip(self) -> str:
        """The address at which the kubelet listens; empty if there is none yet."""
        addresses = (item.address for item in self.status.addresses if item.type == "InternalIP")
        return next(addresses, "")

    @property
    def has_gpus(self) -> bool:
        return any(name.endswith("/gpu") and count != "0" for name, count in self.status.allocatable.items())


class Container(Struct):
    name: str
    image: str = ""


class OwnPodSpec(Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] = field(default_factory=list)


class OwnPod(Struct):
    """A pod on this machine."""

    resource: ClassVar[Resource] = Pod.resource

    metadata: ObjectMeta
    spec: OwnPodSpec = field(default_factory=OwnPodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def needs_node(self) -> bool:
        """Return True while the pod runs and would be lost, or run elsewhere, without this node."""
        if self.status.phase in ("Succeeded", "Failed"):
            return False
        owners = {owner.kind for owner in self.metadata.owner_references}
        return not owners & {"DaemonSet", "Node"}
