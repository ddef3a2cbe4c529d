"""Tests that a VM of `argosy rehearse spot` becomes a node of the local control plane and runs real pods."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.local_control_plane import ControlPlane
from tests.support.servers import free_port
from tests.support.spot_instances import CREDENTIALS, JOIN
from tests.support.spot_jobs import spot_vm

pytestmark = pytest.mark.e2e

INSTANCE = {
    "apiVersion": "training.training.dcnlab.com/v1alpha1",
    "kind": "ProvisionedInstance",
    "metadata": {"name": "spot-1"},
    "spec": {
        "instanceTemplateName": "vm",
        "instanceTemplateKind": "SpotInstanceVM",
        "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
    },
}

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "training"},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"training.dcnlab.com/provisioned-instance": "spot-1"},
        "containers": [
            {
                "name": "main",
                "image": "local",
                "command": ["sh", "-c", "echo on $NODE; sleep 600"],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
    },
}


def secret(name: str, data: dict[str, bytes]) -> dict[str, object]:
    text = {key: value.decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": text}


@contextmanager
def running(plane: ControlPlane, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = plane.start(*words)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def wait(condition: Callable[[], bool], what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


@pytest.mark.timeout(400)
def test_a_vm_joins_runs_a_pod_and_is_taken_back() -> None:
    plane, port = ControlPlane.up("--nodes", "1", "--no-operator"), free_port()
    endpoint = f"http://127.0.0.1:{port}"

    def field(*words: str) -> str:
        found = plane.kubectl("get", *words, code=None)
        return found.stdout.strip()

    def instance(path: str) -> str:
        return field("provisionedinstance", "spot-1", "-o", f"jsonpath={{.status.{path}}}")

    try:
        with (
            running(plane, "rehearse", "spot", "--port", str(port), "--boot", "1s", "--notice", "3s"),
            running(
                plane,
                *("operator", "--local", str(plane.state.folder), "--api", "spot"),
                *("--gce-endpoint", endpoint, "--bootstrap-token-namespaces", "default"),
                *("--instance-poll", "1"),
            ),
        ):
            manifests = [
                secret("gcp-credentials", {"credentials.json": CREDENTIALS}),
                secret("kubeadm-join-token", {**JOIN, "token": b"auto"}),
                spot_vm("vm"),
                INSTANCE,
                POD,
            ]
            for manifest in manifests:
                plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
            ready = 'conditions[?(@.type=="NodeReady")].status'
            wait(lambda: instance(ready) == "True", "the VM is a ready node")
            assert instance("nodeName") == "spot-1"
            wait(lambda: "on spot-1" in plane.kubectl("logs", "training", code=None).stdout, "the pod runs")
            wait(lambda: not has_tokens(plane), "its token is deleted")
            plane.argosy("rehearse", "preempt", "spot-1", "--endpoint", endpoint)
            wait(lambda: instance("cause") == "Preempted", "the preemption is noticed")
            source = "jsonpath={.metadata.annotations.training\\.dcnlab\\.com/termination-source}"
            wait(lambda: field("node", "spot-1", "-o", source) == "gce-preempted", "its agent announces it")
            wait(lambda: instance("state") == "TERMINATED", "the VM is gone")
            plane.kubectl("delete", "provisionedinstance", "spot-1", "--timeout", "60s")
            wait(lambda: "spot-1" not in field("nodes", "-o", "name"), "its node is gone")
    finally:
        plane.down()


def has_tokens(plane: ControlPlane) -> bool:
    """Return True if there are bootstrap tokens."""
    listed = plane.kubectl("get", "secrets", "-n", "kube-system", "-o", "name").stdout
    return "bootstrap-token" in listed
