"""The requests that start a cluster: apply or get an object, and resolve a name by its DNS server."""

import json
import socket
import ssl
import urllib.error
import urllib.request
from typing import cast

import dnslib

from tests.support.servers import Server

_RESOURCES = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "EndpointSlice": "endpointslices",
    "Service": "services",
}


def apply(server: Server, wanted: dict[str, object]) -> None:
    """Create or replace an object."""
    version, metadata = str(wanted["apiVersion"]), cast("dict[str, str]", wanted["metadata"])
    place = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if namespace := metadata.get("namespace"):
        place += f"/namespaces/{namespace}"
    place += f"/{_RESOURCES[str(wanted['kind'])]}/{metadata['name']}?fieldManager=cluster&force=true"
    _send(server, "PATCH", place, json.dumps(wanted).encode(), "application/apply-patch+yaml")


def get(server: Server, place: str) -> dict[str, object] | None:
    """An object or a list; None if it does not exist or the server does not respond."""
    try:
        return cast("dict[str, object]", json.loads(_send(server, "GET", place)))
    except (urllib.error.URLError, OSError):
        return None


def ready_nodes(server: Server) -> set[str]:
    """The names of the nodes that are ready."""
    listed = get(server, "/api/v1/nodes") or {}
    names = set()
    for node in cast("list[dict[str, dict[str, object]]]", listed.get("items", [])):
        conditions = cast("list[dict[str, str]]", node["status"].get("conditions", []))
        if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
            names.add(str(node["metadata"]["name"]))
    return names


def resolves(server_address: str, name: str) -> bool:
    """True if a DNS server resolves the name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.5)
        try:
            asking.sendto(dnslib.DNSRecord.question(name).pack(), (server_address, 53))
            answer = dnslib.DNSRecord.parse(asking.recv(4096))
        except OSError:
            return False
    return bool(answer.rr)


def _send(
    server: Server, method: str, place: str, body: bytes | None = None, kind: str = "application/json"
) -> bytes:
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": kind}
    request = urllib.request.Request(server.url + place, body, headers, method=method)
    context = ssl.create_default_context(cafile=str(server.ca_file))
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        return cast("bytes", answer.read())
