"""Clocks set back by an hour in the middle of runs: of each part of the control plane alone, then of all.

Whoever waits goes on within the usual time, nobody is locked out, and no node is taken for lost.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos import kill_component, leftovers, no_duplicate_pods
from tests.support.clock_skew import PARTS, Clocks, compiler
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

Json = dict[str, object]
HOUR = 3600
PATIENCE = 90.0
"""Seconds: far more than anything takes here, far less than what the clocks lose."""


class Plane:
    """A control plane whose clocks can be set."""

    def __init__(self, plane: ControlPlane, clocks: Clocks, counts: Path) -> None:
        self.plane = plane
        self.clocks = clocks
        self.counts = counts
        self.lost = dict.fromkeys(PARTS, 0)

    def lose_an_hour(self, parts: tuple[str, ...]) -> None:
        for part in parts:
            self.lost[part] += HOUR
            self.clocks.set_back([part], self.lost[part])

    def status(self, name: str) -> Json:
        found = self.plane.kubectl("get", "tr", name, "-o", "json", "--ignore-not-found").stdout
        status = json.loads(found).get("status", {}) if found else {"phase": "Deleted"}
        assert isinstance(status, dict)
        return status

    def until(self, name: str, key: str, want: str) -> None:
        wait_for(
            lambda: self.status(name).get(key) == want,
            lambda: f"{name} has {key} {want}: {self.status(name)}",
            PATIENCE,
        )


@pytest.fixture(scope="module")
def clocked() -> Iterator[Plane]:
    if compiler() is None:
        pytest.skip("needs a C compiler")
    with tempfile.TemporaryDirectory(prefix="argosy-") as folder, pytest.MonkeyPatch.context() as patch:
        clocks = Clocks.make(Path(folder))
        for name, value in clocks.environment.items():
            patch.setenv(name, value)
        plane = ControlPlane.up()
        yield Plane(plane, clocks, Path(folder))
        plane.argosy("down")
        left = leftovers(plane)
        plane.down()
        assert left == []


JUMPS: dict[str, tuple[str, ...]] = {
    "the operator": ("operator",),
    "the API server": ("argosy.local.apiserver",),
    "the node agent": ("argosy.local.node",),
    "the machine": PARTS,
}


@pytest.mark.long
@pytest.mark.parametrize("parts", JUMPS.values(), ids=JUMPS)
def test_an_hour_is_lost_by(clocked: Plane, parts: tuple[str, ...]) -> None:
    number = list(JUMPS.values()).index(parts)
    flaky, slow = f"flaky-{number}", f"slow-{number}"
    with no_duplicate_pods(clocked.plane):
        for run in (_flaky(flaky, clocked.counts), _slow(slow)):
            clocked.plane.kubectl("apply", "-f", "-", stdin=json.dumps(run))
        clocked.until(slow, "phase", "Running")
        token = _token(clocked.plane, f"{slow}-worker-0")
        clocked.until(flaky, "reason", "BackOff")
        clocked.lose_an_hour(parts)

        assert _accepted(clocked.plane, token), "a token from before the jump"
        assert "hello" in clocked.plane.argosy("run", "--", "echo", "hello").stdout
        clocked.until(flaky, "phase", "Deleted")
        assert (clocked.counts / flaky).read_text().split() == ["1", "2", "3"], "it ran until it succeeded"
        clocked.until(slow, "phase", "Failed")
        assert clocked.status(slow)["reason"] == "DeadlineExceeded"
        _no_node_was_lost(clocked.plane)
        if "operator" in parts:
            kill_component(clocked.plane, "operator")
            assert "hello" in clocked.plane.argosy("run", "--", "echo", "hello").stdout
        clocked.plane.argosy("rm", "--all")


def _flaky(name: str, counts: Path) -> Json:
    """Fails twice, which is followed by a pause, then succeeds, and is deleted soon after."""
    script = (
        f"n=$(wc -l < {counts}/{name} || echo 0); echo $((n + 1)) >> {counts}/{name}; [ $n -ge 2 ] || exit 3"
    )
    volume = {"name": "counts", "hostPath": {"path": str(counts)}}
    mount = {"name": "counts", "mountPath": str(counts)}
    limits = {"restarts": 5, "ttlAfterSucceeded": "1s"}
    return _run(name, script, limits, volumes=[volume], mounts=[mount])


def _slow(name: str) -> Json:
    """Is ended by its deadline."""
    return _run(name, "trap 'exit 0' TERM; sleep 1000 & wait", {"activeDeadline": "15s"})


def _run(name: str, script: str, limits: Json, volumes: object = (), mounts: object = ()) -> Json:
    container = {"name": "main", "image": "local", "command": ["sh", "-c", script], "volumeMounts": mounts}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}}
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {"framework": "custom", "limits": limits, "roles": {"worker": {"template": template}}},
    }


def _token(plane: ControlPlane, pod: str) -> str:
    path = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    return plane.kubectl("exec", pod, "--", "cat", path).stdout


def _accepted(plane: ControlPlane, token: str) -> bool:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = plane.kubectl(
        "create", "--validate=false", "-f", "-", "-o", "json", stdin=json.dumps(review)
    ).stdout
    return json.loads(answer)["status"].get("authenticated") is True


def _no_node_was_lost(plane: ControlPlane) -> None:
    events = plane.kubectl("get", "events", "-A", "-o", "jsonpath={.items[*].reason}").stdout.split()
    assert "NodeNotReady" not in events
    plane.kubectl("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=1s")
