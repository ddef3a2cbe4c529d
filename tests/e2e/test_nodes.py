"""Nodes of the local control plane pretend to have GPUs, and hide the user's files from pods."""

import json
from pathlib import Path

import pytest

from tests.support.local_control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_nodes_have_the_requested_number_of_gpus(plane: ControlPlane) -> None:
    gpus = plane.kubectl("get", "nodes", "-o", r"jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}")
    assert gpus.stdout.split() == ["2", "2", "2"]


def test_pods_cannot_read_secrets_of_the_user_or_the_control_plane(plane: ControlPlane) -> None:
    container = {"name": "main", "image": "local", "command": ["sleep", "600"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "curious"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    plane.kubectl("wait", "--for=condition=Ready", "pod/curious", "--timeout=60s")
    state = str(plane.state.folder)
    for path in (f"{state}/tokens.json", f"{state}/kubeconfig", str(Path.home() / ".ssh")):
        done = plane.kubectl("exec", "curious", "--", "ls", path, code=None)
        assert done.returncode != 0, f"{path} can be seen"
    plane.kubectl("delete", "pod", "curious")
