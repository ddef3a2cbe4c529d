"""Serves the external metrics API of a real cluster through its aggregation layer, with values of a test.

kube-apiserver forwards requests for `external.metrics.k8s.io` to the Service of an APIService, whose endpoint
is a server of this process. HorizontalPodAutoscalers then read the values as those of any metrics adapter.
"""

import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509

from tests.support.certificates import Authority
from tests.support.cluster.running import RunningCluster

Json = dict[str, object]
GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
SERVICE = "test-metrics"
NAMESPACE = "default"


class ExternalMetrics:
    """The values of metrics by name, which a test changes."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.requests = 0

    def answer(self, path: str) -> Json | None:
        """Return what the API serves at a path."""
        root = f"/apis/{GROUP}/{VERSION}"
        where, _, name = path.partition("?")[0].rpartition("/")
        if path.partition("?")[0].rstrip("/") == root:
            resource = {"name": "*", "singularName": "", "namespaced": True, "verbs": ["get"]}
            kinds = [{**resource, "kind": "ExternalMetricValueList"}]
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": kinds,
            }
        if not where.startswith(f"{root}/namespaces/") or name not in self.values:
            return None
        self.requests += 1
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "value": str(self.values[name]),
        }
        return {
            "kind": "ExternalMetricValueList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": [item],
        }


def autoscaler(name: str, namespace: str, target: Json, lowest: int, highest: int) -> Json:
    """Return an autoscaler that wants as many replicas as the metric of its name says."""
    metric = {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "1"}}
    at_once = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": lowest,
            "maxReplicas": highest,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": at_once, "scaleUp": at_once},
        },
    }


@contextmanager
def served_metrics(cluster: RunningCluster) -> Iterator[ExternalMetrics]:
    """Serve metrics to the cluster during a with block."""
    metrics, address = ExternalMetrics(), cluster.state.layout.host_address

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = metrics.answer(self.path)
            body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the output of tests clean."""

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    server.socket = _tls(address).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects(address, server.server_port)})
    try:
        cluster.kubectl("apply", "-f", "-", stdin=objects)
        yield metrics
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=objects, code=None)
        server.shutdown()
        server.server_close()
        thread.join(10)


def _tls(address: str) -> ssl.SSLContext:
    issued = Authority().issue(SERVICE, x509.IPAddress(ipaddress.ip_address(address)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "server.pem"
        file.write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(file)
    return context


def _objects(address: str, port: int) -> list[Json]:
    meta: Json = {"name": SERVICE, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {"name": SERVICE, "namespace": NAMESPACE, "port": 443},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
