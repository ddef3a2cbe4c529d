"""Load for servers: pods of ordinary size, concurrent requests, and the baseline server."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from tests.support.servers import Server, free_port

IN_FLIGHT = 32


def pod(name: str) -> dict[str, object]:
    """Return a pod manifest of ordinary size, about 1.5 kB as JSON."""
    variables = [
        {"name": f"VARIABLE_{number}", "value": f"value of variable {number}"} for number in range(8)
    ]
    container = {
        "name": "main",
        "image": "local",
        "command": ["python", "-m", "train", "--epochs", "10"],
        "env": variables,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    }
    labels = {
        "app.kubernetes.io/managed-by": "argosy",
        "argosy.dev/job": "bench",
        "argosy.dev/role": "worker",
    }
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def encoded_pod(name: str) -> bytes:
    """Return a pod manifest as JSON."""
    return json.dumps(pod(name)).encode()


async def per_second(
    count: int, request: Callable[[int], Awaitable[object]], in_flight: int = IN_FLIGHT
) -> float:
    """Make numbered requests, a fixed number of them in flight; return requests per second."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await request(number)

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return count / (time.perf_counter() - start)


@contextlib.contextmanager
def baseline_server(server: Server, body: Path) -> Iterator[Server]:
    """Run the bound: the same HTTP stack and certificate, with one file as the body of every response."""
    port = free_port()
    pki = server.folder / "pki"
    command = [sys.executable, "-m", "bench.baseline_server", str(port), str(server.folder), str(body)]
    process = subprocess.Popen(command)
    try:
        wait_until_open(port)
        yield Server(
            "baseline", f"https://127.0.0.1:{port}", server.token, server.ca_file, server.kubeconfig, pki
        )
    finally:
        process.terminate()
        process.wait()


def wait_until_open(port: int) -> None:
    """Wait until something listens on a port of loopback."""
    import socket

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise TimeoutError(f"timeout: nothing listens on port {port}")


def full_pod(number: int) -> dict[str, object]:
    """Return a running pod as an API server sends it, with managedFields: about 4 kB."""
    manifest = pod(f"pod-{number}")
    metadata = {
        "name": f"pod-{number}",
        "namespace": "default",
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "resourceVersion": str(number + 2),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "argosy.dev/job": f"job-{number // 8}",
            "argosy.dev/role": "worker",
            "argosy.dev/index": str(number % 8),
        },
        "ownerReferences": [
            {
                "apiVersion": "argosy.dev/v1alpha1",
                "kind": "TrainingRun",
                "name": f"job-{number // 8}",
                "uid": f"10000000-0000-0000-0000-{number // 8:012}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [
            {
                "manager": manager,
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {f"f:field{field}": {} for field in range(40)}},
            }
            for manager in ("argosy", "node")
        ],
    }
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    running = {
        "name": "main",
        "ready": True,
        "restartCount": 0,
        "image": "local",
        "imageID": "",
        "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}},
    }
    status = {
        "phase": "Running",
        "podIP": "10.88.0.2",
        "hostIP": "10.88.0.1",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": ready,
        "containerStatuses": [running],
    }
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "nodeName": "n-1"},
        "status": status,
    }
