"""Pods survive the death of control plane processes, and `argosy down` leaves nothing behind."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from argosy.local.processes import Process
from tests.support.chaos import (
    command_lines,
    kill_component,
    kill_everything,
    leftovers,
    processes,
    run_state,
)
from tests.support.local_control_plane import ControlPlane
from tests.support.parameters import marked
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(240)]

_COUNT = "i=0; while true; do i=$((i + 1)); echo $i; sleep 0.1; done"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane for this test only, with a pod `counter` that prints the numbers from 1 on."""
    plane = ControlPlane.up("--nodes", "1")
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(_counter(plane)))
    plane.kubectl("wait", "--for=condition=Ready", "pod/counter", "--timeout=60s", timeout=70)
    yield plane
    plane.down()


def test_pod_keeps_running_while_every_component_is_killed(plane: ControlPlane) -> None:
    before = _container(plane)
    for component in ("node", "apiserver", "controllers", "operator", "node", "apiserver"):
        kill_component(plane, component)
        _wait_for_counting(plane)
    assert _container(plane) == before
    plane.kubectl("exec", "counter", "--", "true")


def test_logs_follow_prints_every_line_once_while_node_and_apiserver_are_killed(plane: ControlPlane) -> None:
    plane.argosy(
        "run",
        "-d",
        "--name",
        "talker",
        "--",
        "sh",
        "-c",
        "for i in $(seq 60); do echo line $i; sleep 0.1; done",
    )
    following = plane.start("logs", "-f", "talker")
    assert following.stdout is not None
    output = next(line for line in following.stdout if "line" in line)
    for component in ("node", "apiserver", "node"):
        kill_component(plane, component)
    with following:
        output += following.stdout.read()
    assert re.findall(r"line (\d+)", output) == [str(number) for number in range(1, 61)]


def test_up_after_the_supervisor_died_replaces_the_components_and_keeps_the_pods(plane: ControlPlane) -> None:
    before, old = _container(plane), run_state(plane)
    old.supervisor.signal(signal.SIGKILL)
    assert old.supervisor.wait_gone(10)
    plane.argosy("up", "--nodes", "1", "--timeout", "60")
    new = run_state(plane)
    assert not any(component.alive for component in old.components.values())
    assert all(component.alive for component in new.components.values())
    assert new.options.port == old.options.port
    _wait_for_counting(plane)
    assert _container(plane) == before
    _wait_for_one_process_of_each_program(plane)


def _supervisor_only(plane: ControlPlane) -> list[Process]:
    return [run_state(plane).supervisor]


STOPPED = {
    "only the supervisor is stopped": _supervisor_only,
    "every process is stopped, as on a laptop that sleeps": processes,
}


@pytest.mark.long
@pytest.mark.parametrize("stopped", STOPPED.values(), ids=STOPPED.keys())
def test_pods_and_nodes_stay_ready_when_processes_are_stopped_for_more_than_a_minute(
    plane: ControlPlane, stopped: Callable[[ControlPlane], list[Process]]
) -> None:
    before, ready = _container(plane), _ready_since(plane)
    victims = stopped(plane)
    for process in victims:
        process.signal(signal.SIGSTOP)
    time.sleep(70)  # longer than the supervisor's start timeout and than the node lease may be old
    for process in victims:
        process.signal(signal.SIGCONT)
    _wait_for_counting(plane)
    _wait_for_lease_renewal(plane)
    assert _container(plane) == before
    assert _ready_since(plane) == ready
    assert "NodeNotReady" not in plane.kubectl("get", "events", "-A").stdout
    _wait_for_one_process_of_each_program(plane)


def _kill_supervisor(plane: ControlPlane) -> None:
    run_state(plane).supervisor.signal(signal.SIGKILL)


def _kill_all_but_pods(plane: ControlPlane) -> None:
    run = run_state(plane)
    for process in (run.supervisor, *run.components.values()):
        process.signal(signal.SIGKILL)


def _corrupt_run_json(plane: ControlPlane) -> None:
    plane.state.run.write_bytes(b"{")


FAULTS = {
    "the supervisor was killed": _kill_supervisor,
    "everything but the pods was killed": _kill_all_but_pods,
    "run.json is corrupt": _corrupt_run_json,
}


@pytest.mark.parametrize("fault", marked(FAULTS, ["everything but the pods was killed"], pytest.mark.long))
def test_down_leaves_nothing_behind_after_a_fault(
    plane: ControlPlane, fault: Callable[[ControlPlane], None]
) -> None:
    fault(plane)
    assert plane.argosy("down").stdout == "stopped\n"
    assert leftovers(plane) == []
    assert plane.argosy("down").stdout == "nothing was running\n"
    assert plane.argosy("status", code=1).stdout == "not running; `argosy up` starts it\n"


@pytest.mark.long
def test_up_with_a_corrupt_run_json_keeps_the_pods(plane: ControlPlane) -> None:
    before = _container(plane)
    _corrupt_run_json(plane)
    plane.argosy("up", "--nodes", "1", "--timeout", "60")
    _wait_for_one_process_of_each_program(plane)
    assert _container(plane) == before


def test_up_after_a_power_failure_restarts_the_pods(plane: ControlPlane) -> None:
    kill_everything(plane)
    plane.argosy("up", "--nodes", "1", "--timeout", "60")
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    plane.kubectl("wait", restarted, "pod/counter", "--timeout=60s", timeout=70)
    plane.kubectl("wait", "--for=condition=Ready", "pod/counter", "--timeout=60s", timeout=70)
    plane.argosy("down")
    assert leftovers(plane) == []


_PROGRAMS = (
    "argosy.local.apiserver",
    "argosy.local.controllers",
    "argosy.local.node",
    "argosy.local.node.namespace_holder",
    "argosy.local.supervisor",
    "operator",
)


def _wait_for_one_process_of_each_program(plane: ControlPlane) -> None:
    """Wait until each program of the control plane runs exactly once.

    A process that was forked a moment ago still has the command line of its parent, so a second one may be
    seen for an instant.
    """
    wait_for(lambda: _programs(plane) == sorted(_PROGRAMS), lambda: f"running programs: {_programs(plane)}")


def _programs(plane: ControlPlane) -> list[str]:
    """The programs of the control plane, once per process; without the zygote and shims."""
    programs = []
    for words in command_lines(plane).values():
        if "-m" in words:
            name = words[words.index("-m") + 1]
            name = words[words.index("-m") + 2] if name in ("argosy", "argosy.local.deferred_start") else name
            programs.append(name)
    return sorted(name for name in programs if name != "argosy.local.node.zygote")


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
    """The id, start time and restart count of the counter's container, and the pod's address."""
    status = json.loads(plane.kubectl("get", "pod", "counter", "-o", "json").stdout)["status"]
    main = status["containerStatuses"][0]
    return main["containerID"], main["state"]["running"]["startedAt"], main["restartCount"], status["podIP"]


def _ready_since(plane: ControlPlane) -> list[str]:
    """The Ready conditions of the node and the pod, each with its lastTransitionTime."""
    ready = '{.status.conditions[?(@.type=="Ready")]'
    form = f"jsonpath={ready}.status}} {ready}.lastTransitionTime}}"
    return [plane.kubectl("get", name, "-o", form).stdout for name in ("node/node-1", "pod/counter")]


def _wait_for_lease_renewal(plane: ControlPlane) -> None:
    """Wait until the node renews its lease: an expired lease would have been noticed by then."""
    words = ("get", "lease", "node-1", "-n", "kube-node-lease", "-o", "jsonpath={.spec.renewTime}")
    before = plane.kubectl(*words).stdout
    wait_for(lambda: plane.kubectl(*words).stdout != before, "the node does not renew its lease", 60)


def _wait_for_counting(plane: ControlPlane) -> None:
    before = _last_number(plane)
    wait_for(lambda: _last_number(plane) > before, "the counter prints no further number")


def _last_number(plane: ControlPlane) -> int:
    """The last number that the counter printed; fails if a number is missing or printed twice."""
    done = plane.kubectl("logs", "counter", code=None)
    numbers = [int(line) for line in done.stdout.split()]
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)
