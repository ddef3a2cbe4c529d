"""Where the pods of AresJobs that wait ask: at the operator, or at observers, by name or by address.

A pod in its node's network asks an address, for the node's own resolver does not know Services. Where the
observers have a port on every node, pods are told the nodes that have one. Both are looked up when a pod is
made, in caches of what is meant and of nothing else.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from argosy.dialects.ares.initializers import ObserverAddress
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.kinds.kubernetes import Pod, ServiceWithIP

SERVICE, NAMESPACE = "ares-observer", "ares"
"""Where observers are that nothing else is said of."""


class ObserverService(Struct, frozen=True):
    """Processes that answer pods in place of the operator."""

    service: str = f"{SERVICE}.{NAMESPACE}"
    """Under which host name, NAME.NAMESPACE or longer, and perhaps with a port."""
    node_port: int = 0
    """The port that they have on every node; 0: none."""
    namespace: str = NAMESPACE
    labels: Mapping[str, str] = field(default_factory=lambda: {"app": "ares", "module": SERVICE})
    """By which their pods are found, for the port on the nodes."""
    require_tokens: bool = True
    """They answer over TLS, and only who has a job's token; else in plain HTTP, and everybody."""

    @property
    def scheme(self) -> str:
        return "https" if self.require_tokens else "http"

    @property
    def host(self) -> str:
        return self.service.partition(":")[0]


class ObserverLocator:
    """`url` is the operator's own; `service` its Service, NAME.NAMESPACE, if that is what the URL means."""

    def __init__(self, client: Client, url: str, service: str, observers: ObserverService | None) -> None:
        self._url = f"{observers.scheme}://{observers.service}" if observers else url
        self._tls = observers is None or observers.require_tokens
        self._node_port = observers.node_port if observers else 0
        self.services: Cache[ServiceWithIP] | None = None
        self.pods: Cache[Pod] | None = None
        name, _, rest = (observers.host if observers else service).partition(".")
        if observers and self._node_port:
            selector = ",".join(f"{key}={value}" for key, value in sorted(observers.labels.items()))
            self.pods = Cache(client, Pod, namespace=observers.namespace, labels=selector)
        elif name:
            namespace = rest.partition(".")[0]
            self.services = Cache(client, ServiceWithIP, namespace=namespace, fields=f"metadata.name={name}")

    @property
    def caches(self) -> "tuple[Cache[Pod] | Cache[ServiceWithIP], ...]":
        return tuple(cache for cache in (self.services, self.pods) if cache is not None)

    def observer_address(self, host_network: bool) -> ObserverAddress:
        """What the initializer is told; for a pod in the network of its node or in the cluster's."""
        return ObserverAddress(self._uri(host_network), self._tls)

    def _uri(self, host_network: bool) -> str:
        if self._node_port:
            addresses = sorted({pod.status.host_ip for pod in self.pods or () if pod.status.host_ip})
            listed = f"{','.join(addresses)}:" if addresses else ""
            return f"nodePort://{listed}{self._node_port}"
        address = next((one.spec.cluster_ip for one in self.services or ()), "")
        if not host_network or address in ("", "None"):
            return self._url
        scheme, _, host = self._url.partition("://")
        port = host.partition(":")[1:]
        return f"{scheme}://{f'[{address}]' if ':' in address else address}{''.join(port)}"
