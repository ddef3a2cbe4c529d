"""Tests for the addresses that the initializers of AresJobs use."""

from collections.abc import Sequence

import pytest
from msgspec import Struct

from argosy.dialects.ares.initializers import ObserverAddress
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Pod, PodStatus, ServiceSpec, ServiceWithIP
from argosy.kinds.meta import ObjectMeta
from argosy.operator.apis.ares.observer_locator import ObserverLocator
from argosy.operator.apis.ares.settings import ObserverService

OPERATOR = "https://argosy-operator.argosy-system.svc"
NODE_PORT = ObserverService(node_port=30037)


class Case(Struct):
    observers: ObserverService | None
    want: ObserverAddress
    host_network: bool = False
    cluster_ip: str = ""
    hosts: Sequence[str] = ()


CASES = {
    "no observers: Service of the operator": Case(None, ObserverAddress(OPERATOR), cluster_ip="10.96.0.7"),
    "no observers, host network: address of the operator's Service": Case(
        None, ObserverAddress("https://10.96.0.7"), host_network=True, cluster_ip="10.96.0.7"
    ),
    "observers: their Service": Case(
        ObserverService(), ObserverAddress("https://ares-observer.ares"), cluster_ip="10.96.0.8"
    ),
    "observers, host network: address of their Service": Case(
        ObserverService(), ObserverAddress("https://10.96.0.8"), host_network=True, cluster_ip="10.96.0.8"
    ),
    "observers with a port, host network, IPv6: address in brackets with the port": Case(
        ObserverService("o.ares:8443"),
        ObserverAddress("https://[fd00::8]:8443"),
        host_network=True,
        cluster_ip="fd00::8",
    ),
    "observers, host network, Service without an address: its name": Case(
        ObserverService(), ObserverAddress("https://ares-observer.ares"), host_network=True, cluster_ip="None"
    ),
    "observers without tokens: plain HTTP": Case(
        ObserverService(require_tokens=False), ObserverAddress("http://ares-observer.ares", tls=False)
    ),
    "node port: sorted addresses of the nodes with observers": Case(
        NODE_PORT,
        ObserverAddress("nodePort://10.0.0.1,10.0.0.2:30037"),
        hosts=("10.0.0.2", "", "10.0.0.1", "10.0.0.2"),
    ),
    "node port, no observer is running: port only": Case(NODE_PORT, ObserverAddress("nodePort://30037")),
    "node port, host network: addresses of nodes": Case(
        NODE_PORT, ObserverAddress("nodePort://10.0.0.1:30037"), host_network=True, hosts=("10.0.0.1",)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_observer_address(case: Case) -> None:
    client = Client(Connection(server="https://127.0.0.1:1"))
    locator = ObserverLocator(client, OPERATOR, "argosy-operator.argosy-system", case.observers)
    if locator.services is not None and case.cluster_ip:
        locator.services.put(ServiceWithIP(_meta("service", 1), ServiceSpec(case.cluster_ip)))
    for number, host in enumerate(case.hosts):
        assert locator.pods is not None
        locator.pods.put(Pod(_meta(f"observer-{number}", number + 1), status=PodStatus(host_ip=host)))
    assert locator.observer_address(case.host_network) == case.want
    await client.close()


def _meta(name: str, version: int) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ares", uid=name, resource_version=str(version))
