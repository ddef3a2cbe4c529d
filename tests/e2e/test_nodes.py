"""What only nodes of the local control plane do: pretend to have GPUs, and hide what is not a pod's."""

import json
from pathlib import Path

import pytest

from tests.support.local_control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_nodes_have_what_was_asked_for(plane: ControlPlane) -> None:
    found = plane.kubectl("get", "nodes", "-o", r"jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}")
    assert found.stdout.split() == ["2", "2", "2"]


def test_pods_cannot_read_what_is_not_theirs(plane: ControlPlane) -> None:
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
