"""Runs are unaffected when components of the control plane are killed at random points.

Every pod counts steps in its own file and prints each step once, so a pod that was started twice or restarted
without need, and lines that were lost or printed twice, show in the output of `argosy run`.
"""

import logging
import os
import random
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.chaos import kill_component, leftovers, no_duplicate_pods
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(240)]

log = logging.getLogger(__name__)

_STEP_COUNT = 36
_SCRIPT = """
me=/data/$ROLE-$INDEX
exec 9>$me.lock
flock -n 9 || { echo "another pod holds $me"; exit 99; }
step=$(cat $me 2>/dev/null || echo 0)
while [ $step -lt $STEPS ]; do
  step=$((step + 1))
  echo $step > $me.new; mv $me.new $me
  echo "step $step"
  if [ "$ROLE-$INDEX-$step" = "$FAIL" ]; then exit 3; fi
  sleep 0.25
done
"""


@pytest.fixture
def own_plane() -> Iterator[ControlPlane]:
    """A control plane that only this test uses and may break."""
    running_plane = ControlPlane.up("--nodes", "2")
    yield running_plane
    running_plane.down()


@pytest.mark.long
def test_runs_succeed_when_every_component_is_killed_once(own_plane: ControlPlane, tmp_path: Path) -> None:
    _kill_at_random(own_plane, tmp_path, ("apiserver", "node", "operator", "controllers"))
    wait_for(lambda: not _pod_folders(own_plane), "folders of deleted pods remain", 60)
    own_plane.argosy("down")
    assert leftovers(own_plane) == []


@pytest.mark.parametrize(
    "outages",
    [
        pytest.param((("node", "apiserver"),), id="node and API server"),
        pytest.param((("node",), ("apiserver",), ("operator",)), id="one component", marks=pytest.mark.long),
    ],
)
def test_all_output_of_a_pod_that_fails_during_an_outage_is_printed(
    own_plane: ControlPlane, tmp_path: Path, outages: tuple[tuple[str, ...], ...]
) -> None:
    """The pod is replaced by one of the same name as soon as its failure is observed."""
    for victims in outages:
        name = "-".join(("lost", *victims))
        run = _Running(own_plane, _run(name, tmp_path, own_plane, fail="worker-1-8", steps=12))
        _wait_for_steps(7, tmp_path / name, of="worker-1")
        for victim in victims:
            kill_component(own_plane, victim)
        run.ends(0)
        all_steps = list(range(1, 13))
        assert run.steps() == {"worker-0": all_steps, "worker-1": all_steps}, "".join(run.lines)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_runs_succeed_when_every_component_is_killed_20_times(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    for turn in range(10):
        folder = tmp_path / str(turn)
        folder.mkdir()
        _kill_at_random(own_plane, folder, ("apiserver", "node", "operator") * 2)
    own_plane.argosy("down")
    assert leftovers(own_plane) == []


def _kill_at_random(plane: ControlPlane, folder: Path, victims: tuple[str, ...]) -> None:
    seed = int(os.environ.get("ARGOSY_SEED") or random.SystemRandom().randrange(1 << 32))
    log.warning("ARGOSY_SEED=%d", seed)
    dice = random.Random(seed)
    points = sorted(dice.randrange(5 * _STEP_COUNT * 9 // 10) for _ in victims)
    with no_duplicate_pods(plane):
        plain = _Running(plane, _run("plain", folder, plane, replicas=3))
        once = _Running(plane, _run("once", folder, plane, fail=f"worker-1-{_STEP_COUNT // 2}"))
        never = _Running(plane, _run("never", folder, plane, fail=f"worker-0-{_STEP_COUNT // 3}", restarts=0))
        wait_for(lambda: all(run.lines for run in (plain, once, never)), "all are submitted", 60)
        for victim, point in zip(dice.sample(victims, len(victims)), points, strict=True):
            _wait_for_steps(point, folder / "plain", folder / "once")
            log.warning("killing %s after %d steps", victim, point)
            kill_component(plane, victim)
        plain.ends(0)
        once.ends(0)
        never.ends(1)
    all_steps = list(range(1, _STEP_COUNT + 1))
    assert plain.steps() == {"worker-0": all_steps, "worker-1": all_steps, "worker-2": all_steps}, "".join(
        plain.lines
    )
    assert once.steps() == {"worker-0": all_steps, "worker-1": all_steps}, "".join(once.lines)
    stopped = never.steps().get("worker-1", [])  # on a busy machine it may be deleted before it starts
    assert never.steps()["worker-0"] == all_steps[: _STEP_COUNT // 3], "".join(never.lines)
    assert stopped == all_steps[: len(stopped)], "".join(never.lines)
    # The operator deleted this pod, perhaps after it had counted a step and before it printed it.
    counter = folder / "never" / "worker-1"
    counted = int(counter.read_text()) if counter.exists() else 0
    assert len(stopped) >= counted - 1, "".join(never.lines)
    status = plane.get("tr", "once")["status"]
    assert isinstance(status, dict)
    assert (status["phase"], status["restarts"]) == ("Succeeded", 1)
    plane.argosy("rm", "--all")
    assert plane.get("pods")["items"] == []


def _wait_for_steps(count: int, *folders: Path, of: str = "worker-[0-9]") -> None:
    """Wait until the pods of these runs have done this many steps together."""

    def enough() -> bool:
        done = [int(path.read_text()) for folder in folders for path in folder.glob(of)]
        return sum(done) >= count

    wait_for(enough, f"{count} steps are done", 60)


class _Running:
    """`argosy run` with a file; its output is read while it runs."""

    def __init__(self, plane: ControlPlane, path: Path) -> None:
        self.name = path.stem
        self.lines: list[str] = []
        self._process = plane.start("run", str(path))
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def ends(self, code: int, seconds: float = 120) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"{self.name} did not end:\n" + "".join(self.lines)) from None
        finally:
            self._reader.join(10)
        assert self._process.returncode == code, "".join(self.lines)

    def steps(self) -> dict[str, list[int]]:
        """The steps that each pod printed, in order."""
        steps = defaultdict(list)
        for line in self.lines:
            source, bar, text = line.partition(" │ ")
            if bar and text.startswith("step "):
                steps[source.strip()].append(int(text.split()[1]))
        return dict(steps)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            self.lines.extend(stream)


def _run(
    name: str,
    folder: Path,
    plane: ControlPlane,
    *,
    replicas: int = 2,
    fail: str = "",
    restarts: int = 1,
    steps: int = _STEP_COUNT,
) -> Path:
    data = folder / name
    data.mkdir()
    variables = {"STEPS": str(steps), "FAIL": fail, "MARK": f"{plane.home}/"}
    container = {
        "name": "main",
        "image": "local",
        "command": ["sh", "-c", _SCRIPT],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    template = {
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "data", "hostPath": {"path": str(data)}}],
        }
    }
    document = {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "roles": {"worker": {"replicas": replicas, "template": template}},
            "limits": {"restarts": restarts},
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _pod_folders(plane: ControlPlane) -> list[str]:
    return [entry.name for entry in plane.state.pods.iterdir() if entry.is_dir()]
