"""Runs are unaffected when clocks are set back by an hour, of each component alone and of all.

Waits end within the usual time, tokens stay valid, and no node becomes NotReady.
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
TIMEOUT_SECONDS = 90.0
"""Far more than anything takes here, far less than the hour by which clocks are set back."""


class SkewedPlane:
    """A control plane whose clocks can be set back."""

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
        stdout = self.plane.kubectl("get", "tr", name, "-o", "json", "--ignore-not-found").stdout
        status = json.loads(stdout).get("status", {}) if stdout else {"phase": "Deleted"}
        assert isinstance(status, dict)
        return status

    def wait_until(self, name: str, key: str, want: str) -> None:
        wait_for(
            lambda: self.status(name).get(key) == want,
            lambda: f"{name} has {key} {want}: {self.status(name)}",
            TIMEOUT_SECONDS,
        )


@pytest.fixture(scope="module")
def skewed() -> Iterator[SkewedPlane]:
    if compiler() is None:
        pytest.skip("needs a C compiler")
    with tempfile.TemporaryDirectory(prefix="argosy-") as folder, pytest.MonkeyPatch.context() as patch:
        clocks = Clocks.make(Path(folder))
        for name, value in clocks.environment.items():
            patch.setenv(name, value)
        plane = ControlPlane.up()
        yield SkewedPlane(plane, clocks, Path(folder))
        plane.argosy("down")
        left = leftovers(plane)
        plane.down()
        assert left == []


SKEWED_PROCESSES: dict[str, tuple[str, ...]] = {
    "clock of the operator": ("operator",),
    "clock of the API server": ("argosy.local.apiserver",),
    "clock of the node agent": ("argosy.local.node",),
    "clocks of all processes": PARTS,
}


@pytest.mark.long
@pytest.mark.parametrize("parts", SKEWED_PROCESSES.values(), ids=SKEWED_PROCESSES)
def test_runs_and_tokens_survive_setting_back_by_an_hour(skewed: SkewedPlane, parts: tuple[str, ...]) -> None:
    number = list(SKEWED_PROCESSES.values()).index(parts)
    flaky, slow = f"flaky-{number}", f"slow-{number}"
    with no_duplicate_pods(skewed.plane):
        for run in (_flaky(flaky, skewed.counts), _slow(slow)):
            skewed.plane.kubectl("apply", "-f", "-", stdin=json.dumps(run))
        skewed.wait_until(slow, "phase", "Running")
        token = _token(skewed.plane, f"{slow}-worker-0")
        skewed.wait_until(flaky, "reason", "BackOff")
        skewed.lose_an_hour(parts)

        assert _accepted(skewed.plane, token), "a token issued before the jump is rejected"
        assert "hello" in skewed.plane.argosy("run", "--", "echo", "hello").stdout
        skewed.wait_until(flaky, "phase", "Deleted")
        assert (skewed.counts / flaky).read_text().split() == ["1", "2", "3"], (
            "it did not run exactly until it succeeded"
        )
        skewed.wait_until(slow, "phase", "Failed")
        assert skewed.status(slow)["reason"] == "DeadlineExceeded"
        _no_node_was_lost(skewed.plane)
        if "operator" in parts:
            kill_component(skewed.plane, "operator")
            assert "hello" in skewed.plane.argosy("run", "--", "echo", "hello").stdout
        skewed.plane.argosy("rm", "--all")


def _flaky(name: str, counts: Path) -> Json:
    """A run that fails twice, backs off, then succeeds, and is deleted after its TTL."""
    script = (
        f"n=$(wc -l < {counts}/{name} || echo 0); echo $((n + 1)) >> {counts}/{name}; [ $n -ge 2 ] || exit 3"
    )
    volume = {"name": "counts", "hostPath": {"path": str(counts)}}
    mount = {"name": "counts", "mountPath": str(counts)}
    limits = {"restarts": 5, "ttlAfterSucceeded": "1s"}
    return _run(name, script, limits, volumes=[volume], mounts=[mount])


def _slow(name: str) -> Json:
    """A run that ends by its deadline."""
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
