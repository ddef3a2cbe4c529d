"""Tells the initializers of AresJobs where to ask: the operator or the observers, by name or by address.

A pod in its node's network gets an address, because the node's resolver does not know Services. Where the
observers have a port on every node, pods get the addresses of the nodes on which observers run. Both are
looked up when a pod is created, in caches of that one Service or of the observers' pods.
"""

from argosy.dialects.ares.initializers import ObserverAddress
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.kinds.kubernetes import Pod, ServiceWithIP
from argosy.operator.apis.ares.settings import ObserverService


class ObserverLocator:
    """Returns the address for each new pod.

    `url` is the operator's own endpoint; `service` is NAME.NAMESPACE of its Service, if `url` points to that.
    """

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
        """Return where a pod asks; `host_network`: whether it uses its node's network."""
        return ObserverAddress(self._uri(host_network), self._tls)

    def _uri(self, host_network: bool) -> str:
        if self._node_port:
            addresses = sorted({pod.status.host_ip for pod in self.pods or () if pod.status.host_ip})
            listed = f"{','.join(addresses)}:" if addresses else ""
            return f"nodePort://{listed}{self._node_port}"
        address = next((service.spec.cluster_ip for service in self.services or ()), "")
        if not host_network or address in ("", "None"):
            return self._url
        scheme, _, host = self._url.partition("://")
        port = host.partition(":")[1:]
        return f"{scheme}://{f'[{address}]' if ':' in address else address}{''.join(port)}"
