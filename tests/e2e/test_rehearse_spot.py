"""Tests that a VM of `argosy rehearse spot` becomes a node of the local control plane and runs real pods."""

from collections.abc import Callable

import pytest

from tests.support.local_control_plane import ControlPlane
from tests.support.spot_jobs import spot_vm
from tests.support.spot_rehearsal import rehearsal
from tests.support.waiting import wait_for

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


def wait(condition: Callable[[], bool], what: str) -> None:
    wait_for(condition, what, 90)


@pytest.mark.timeout(400)
def test_a_vm_joins_runs_a_pod_and_is_taken_back() -> None:
    with rehearsal(notice="3s") as rehearsed:
        plane = rehearsed.plane

        def field(*words: str) -> str:
            found = plane.kubectl("get", *words, code=None)
            return found.stdout.strip()

        def instance(path: str) -> str:
            return field("provisionedinstance", "spot-1", "-o", f"jsonpath={{.status.{path}}}")

        rehearsed.apply_secrets()
        rehearsed.apply(spot_vm("vm"), INSTANCE, POD)
        ready = 'conditions[?(@.type=="NodeReady")].status'
        wait(lambda: instance(ready) == "True", "the VM is a ready node")
        assert instance("nodeName") == "spot-1"
        wait(lambda: "on spot-1" in plane.kubectl("logs", "training", code=None).stdout, "the pod runs")
        wait(lambda: not has_tokens(plane), "its token is deleted")
        rehearsed.preempt("spot-1")
        source = "jsonpath={.metadata.annotations.training\\.dcnlab\\.com/termination-source}"
        wait(lambda: field("node", "spot-1", "-o", source) == "gce-preempted", "its agent announces it")
        wait(lambda: instance("cause") == "Preempted", "the preemption is noticed")
        wait(lambda: instance("state") == "TERMINATED", "the VM is gone")
        plane.kubectl("delete", "provisionedinstance", "spot-1", "--timeout", "60s")
        wait(lambda: "spot-1" not in field("nodes", "-o", "name"), "its node is gone")


def has_tokens(plane: ControlPlane) -> bool:
    """Return True if there are bootstrap tokens."""
    listed = plane.kubectl("get", "secrets", "-n", "kube-system", "-o", "name").stdout
    return "bootstrap-token" in listed
