"""What the measurements of servers share: pods to create, requests in flight, a server with nothing in it."""

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
    """A pod of ordinary size, about 1.5 kB as it is sent."""
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
    """A pod as it is sent."""
    return json.dumps(pod(name)).encode()


async def per_second(
    count: int, once: Callable[[int], Awaitable[object]], in_flight: int = IN_FLIGHT
) -> float:
    """How often a second, with so many in flight."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await once(number)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


@contextlib.contextmanager
def bare_server(server: Server, reply: Path) -> Iterator[Server]:
    """The bound: the same HTTP stack with the same certificate, answering every request with one file."""
    port = free_port()
    pki = server.folder / "pki"
    command = [sys.executable, "-m", "bench.bare", str(port), str(server.folder), str(reply)]
    process = subprocess.Popen(command)
    try:
        _until_open(port)
        yield Server(
            "bare", f"https://127.0.0.1:{port}", server.token, server.ca_file, server.kubeconfig, pki
        )
    finally:
        process.terminate()
        process.wait()


def _until_open(port: int) -> None:
    import socket

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise TimeoutError(f"the bare server does not listen on {port}")


def full_pod(number: int) -> dict[str, object]:
    """A running pod as an API server sends it, managedFields and all: about 4 kB."""
    made = pod(f"pod-{number}")
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
    spec = made["spec"]
    assert isinstance(spec, dict)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "nodeName": "n-1"},
        "status": status,
    }
