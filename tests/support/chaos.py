"""Kills parts of a local control plane, watches for duplicate pods, and lists leftovers.

Everything concerns one control plane only, so that tests with several of them can run on one machine.
"""

import contextlib
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from argosy.engine.cache import Change
from argosy.kinds.kubernetes import Pod
from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.local.node import cgroups, egress, shim_manager
from argosy.local.processes import Process, Run, read_run
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for
from tests.support.watch_thread import watch_in_thread


def run_state(plane: ControlPlane) -> Run:
    """The content of `run.json`: the processes of the control plane."""
    run = read_run(plane.state.run)
    assert run is not None, f"no run.json in {plane.state.folder}"
    return run


def kill_component(plane: ControlPlane, component: str) -> Process:
    """Kill a component with SIGKILL and wait until the supervisor has restarted it; returns the new
    process.
    """
    wait_for(lambda: component in run_state(plane).components, f"{component} runs")
    victim = run_state(plane).components[component]
    victim.signal(signal.SIGKILL)

    def restarted() -> bool:
        return run_state(plane).components.get(component, victim) != victim

    wait_for(restarted, f"the supervisor restarts {component}")
    return run_state(plane).components[component]


def kill_everything(plane: ControlPlane) -> None:
    """Kill all processes of a control plane, as a loss of power does; its files stay."""
    for _ in range(20):
        alive = processes(plane)
        if not alive:
            return
        for process in alive:
            process.signal(signal.SIGKILL)
        for process in alive:
            process.wait_gone(5)
    raise AssertionError(f"processes survive SIGKILL: {command_lines(plane)}")


@contextlib.contextmanager
def no_duplicate_pods(plane: ControlPlane) -> Iterator[None]:
    """Check during the block that no two pods of the same job, role and index are alive at once."""
    pods = _DuplicatePods()
    with watch_in_thread(plane.state.kubeconfig, Pod, pods.observe, labels=JOB):
        yield
    assert pods.duplicates == []
    assert pods.uids, "the watch saw no pod at all"


class _DuplicatePods:
    def __init__(self) -> None:
        self._live: dict[tuple[str, ...], set[str]] = defaultdict(set)
        self.duplicates: list[str] = []
        self.uids: set[str] = set()

    def observe(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        labels = pod.metadata.labels
        replica = (pod.metadata.namespace, labels[JOB], labels.get(ROLE, ""), labels.get(INDEX, ""))
        self.uids.add(pod.metadata.uid)
        live = self._live[replica]
        if change.new is not None and _is_live(change.new):
            live.add(pod.metadata.uid)
        else:
            live.discard(pod.metadata.uid)
        if len(live) > 1:
            self.duplicates.append(f"{'/'.join(replica)}: {sorted(live)}")


def _is_live(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def processes(plane: ControlPlane) -> list[Process]:
    """All live processes of a control plane: its components, and the processes in its pods."""
    return list(command_lines(plane))


def command_lines(plane: ControlPlane) -> dict[Process, list[str]]:
    """The words of the command line of every live process of a control plane.

    The command line is read together with the process id: any process may end at any moment, and one that has
    ended is left out.
    """
    lines: dict[Process, list[str]] = {}
    home = str(plane.home).encode() + b"/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            process = Process.of(int(entry.name))
            line = (entry / "cmdline").read_bytes()
            if (home in line or home in (entry / "environ").read_bytes()) and process.alive:
                lines[process] = line.decode(errors="replace").rstrip("\0").split("\0")
    return lines


def leftovers(plane: ControlPlane) -> list[str]:
    """Processes, mounts, sockets, interfaces, cgroups and pods of a control plane that still exist."""
    state = plane.state
    home = str(plane.home)
    left = [
        f"process {process.pid}: {' '.join(words)[:160]}" for process, words in command_lines(plane).items()
    ]
    left += [f"mount {line}" for line in _lines("/proc/self/mountinfo") if home in line]
    left += [f"socket {line}" for line in _lines("/proc/net/unix") if f"{home}/" in line]
    link = egress.link_addresses(state.folder)[0]
    left += [f"interface {link}"] if Path("/sys/class/net", link).exists() else []
    hierarchy = cgroups.find_hierarchy()
    if hierarchy is not None:
        name = shim_manager.pods_cgroup(state.pods)
        left += [f"cgroup {folder}" for folder in Path("/sys/fs/cgroup").glob(f"**/{name}")]
    if state.pods.is_dir():
        left += [f"pod {entry.name}" for entry in state.pods.iterdir() if shim_manager.has_shim(entry)]
    return left


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
