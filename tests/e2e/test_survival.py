"""Pods outlive the control plane's processes, and nothing outlives `argosy down`."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from argosy.local.processes import Process
from tests.support.chaos import kill_component, kill_everything, leftovers, processes, run_state
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(240)]

_COUNT = "i=0; while true; do i=$((i + 1)); echo $i; sleep 0.1; done"


@pytest.fixture
def counting() -> Iterator[ControlPlane]:
    """A control plane of its own, with a pod in it that counts."""
    plane = ControlPlane.up("--nodes", "1")
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(_counter(plane)))
    plane.kubectl("wait", "--for=condition=Ready", "pod/counter", "--timeout=60s", timeout=70)
    yield plane
    plane.down()


def test_a_pod_does_not_notice_that_everything_around_it_is_killed(counting: ControlPlane) -> None:
    before = _container(counting)
    for component in ("node", "apiserver", "controllers", "operator", "node", "apiserver"):
        kill_component(counting, component)
        _counts_on(counting)
    assert _container(counting) == before
    counting.kubectl("exec", "counter", "--", "true")


def test_a_follower_of_logs_sees_every_line_once(counting: ControlPlane) -> None:
    counting.argosy(
        "run",
        "-d",
        "--name",
        "talk",
        "--",
        "sh",
        "-c",
        "for i in $(seq 60); do echo line $i; sleep 0.1; done",
    )
    following = counting.start("logs", "-f", "talk")
    assert following.stdout is not None
    said = next(line for line in following.stdout if "line" in line)
    for component in ("node", "apiserver", "node"):
        kill_component(counting, component)
    with following:
        said += following.stdout.read()
    assert re.findall(r"line (\d+)", said) == [str(number) for number in range(1, 61)]


def test_up_after_the_supervisor_died_replaces_its_parts_and_keeps_its_pods(counting: ControlPlane) -> None:
    before, old = _container(counting), run_state(counting)
    old.supervisor.signal(signal.SIGKILL)
    assert old.supervisor.wait_gone(10)
    counting.argosy("up", "--nodes", "1", "--timeout", "60")
    new = run_state(counting)
    assert not any(component.alive for component in old.components.values())
    assert all(component.alive for component in new.components.values())
    assert new.options.port == old.options.port
    _counts_on(counting)
    assert _container(counting) == before
    assert _programs(counting) == sorted(_PROGRAMS)


def _supervisor_only(plane: ControlPlane) -> list[Process]:
    return [run_state(plane).supervisor]


STOPPED = {
    "the supervisor alone": _supervisor_only,
    "every process, as when a laptop sleeps": processes,
}


@pytest.mark.long
@pytest.mark.parametrize("stopped", STOPPED.values(), ids=STOPPED.keys())
def test_a_stop_of_more_than_a_minute_harms_neither_pods_nor_nodes(
    counting: ControlPlane, stopped: Callable[[ControlPlane], list[Process]]
) -> None:
    before, ready = _container(counting), _ready_since(counting)
    victims = stopped(counting)
    for process in victims:
        process.signal(signal.SIGSTOP)
    time.sleep(70)  # the stop itself: longer than the supervisor waits and than a node may be silent
    for process in victims:
        process.signal(signal.SIGCONT)
    _counts_on(counting)
    _lease_renewed(counting)
    assert _container(counting) == before
    assert _ready_since(counting) == ready
    assert "NodeNotReady" not in counting.kubectl("get", "events", "-A").stdout
    assert _programs(counting) == sorted(_PROGRAMS)


def _kill_supervisor(plane: ControlPlane) -> None:
    run_state(plane).supervisor.signal(signal.SIGKILL)


def _kill_all_but_pods(plane: ControlPlane) -> None:
    found = run_state(plane)
    for process in (found.supervisor, *found.components.values()):
        process.signal(signal.SIGKILL)


def _lose_the_list(plane: ControlPlane) -> None:
    plane.state.run.write_bytes(b"{")


DEATHS = {
    "though the supervisor died": _kill_supervisor,
    "though all but the pods died": _kill_all_but_pods,
    "though the list of processes is lost": _lose_the_list,
}


@pytest.mark.parametrize("die", DEATHS.values(), ids=DEATHS.keys())
def test_down_cleans_up(counting: ControlPlane, die: Callable[[ControlPlane], None]) -> None:
    die(counting)
    assert counting.argosy("down").stdout == "stopped\n"
    assert leftovers(counting) == []


def test_up_keeps_the_pods_though_the_list_of_processes_is_lost(counting: ControlPlane) -> None:
    before = _container(counting)
    _lose_the_list(counting)
    counting.argosy("up", "--nodes", "1", "--timeout", "60")
    assert _programs(counting) == sorted(_PROGRAMS)
    assert _container(counting) == before


def test_up_after_the_power_failed(counting: ControlPlane) -> None:
    kill_everything(counting)
    counting.argosy("up", "--nodes", "1", "--timeout", "60")
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    counting.kubectl("wait", restarted, "pod/counter", "--timeout=60s", timeout=70)
    counting.kubectl("wait", "--for=condition=Ready", "pod/counter", "--timeout=60s", timeout=70)
    counting.argosy("down")
    assert leftovers(counting) == []


def test_down_twice_and_down_without_up(counting: ControlPlane) -> None:
    assert counting.argosy("down").stdout == "stopped\n"
    assert leftovers(counting) == []
    assert counting.argosy("down").stdout == "nothing was running\n"
    assert counting.argosy("status", code=1).stdout == "not running; `argosy up` starts it\n"


_PROGRAMS = (
    "argosy.local.apiserver",
    "argosy.local.controllers",
    "argosy.local.node",
    "argosy.local.node.namespace_holder",
    "argosy.local.supervisor",
    "operator",
)


def _programs(plane: ControlPlane) -> list[str]:
    """The parts of the control plane that run, each as often as it does; zygote and shims left out."""
    found = []
    for process in processes(plane):
        words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
        if "-m" in words:
            name = words[words.index("-m") + 1]
            name = words[words.index("-m") + 2] if name in ("argosy", "argosy.local.deferred_start") else name
            found.append(name)
    return sorted(name for name in found if name != "argosy.local.node.zygote")


def _counter(plane: ControlPlane) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "local",
        "command": ["sh", "-c", _COUNT],
        "env": [{"name": "MARK", "value": f"{plane.home}/"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "counter"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def _container(plane: ControlPlane) -> tuple[object, ...]:
    """Which container it is: its id, since when it runs, and how often it was restarted."""
    status = json.loads(plane.kubectl("get", "pod", "counter", "-o", "json").stdout)["status"]
    one = status["containerStatuses"][0]
    return one["containerID"], one["state"]["running"]["startedAt"], one["restartCount"], status["podIP"]


def _ready_since(plane: ControlPlane) -> list[str]:
    """Since when the node and the pod are Ready."""
    ready = '{.status.conditions[?(@.type=="Ready")]'
    form = f"jsonpath={ready}.status}} {ready}.lastTransitionTime}}"
    return [plane.kubectl("get", name, "-o", form).stdout for name in ("node/node-1", "pod/counter")]


def _lease_renewed(plane: ControlPlane) -> None:
    """Wait for the node's next word: until then nobody could have found it silent."""
    words = ("get", "lease", "node-1", "-n", "kube-node-lease", "-o", "jsonpath={.spec.renewTime}")
    before = plane.kubectl(*words).stdout
    wait_for(lambda: plane.kubectl(*words).stdout != before, "the node renews its lease", 60)


def _counts_on(plane: ControlPlane) -> None:
    counted = _counted(plane)
    wait_for(lambda: _counted(plane) > counted, "it counts on")


def _counted(plane: ControlPlane) -> int:
    """How far it has counted; that no number is missing or doubled is checked on the way."""
    done = plane.kubectl("logs", "counter", code=None)
    numbers = [int(line) for line in done.stdout.split()]
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)
