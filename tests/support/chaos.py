"""What a bad day needs: killing parts of a control plane, watching for twins, and looking for what is left.

All of it looks at one control plane only, so that tests of several may run on one machine at once.
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
    run = read_run(plane.state.run)
    assert run is not None, f"no run.json in {plane.state.folder}"
    return run


def kill_component(plane: ControlPlane, component: str) -> Process:
    """`kill -9` of a component, and wait until the supervisor has noticed; returns the new process."""
    wait_for(lambda: component in run_state(plane).components, f"{component} runs")
    victim = run_state(plane).components[component]
    victim.signal(signal.SIGKILL)

    def again() -> bool:
        return run_state(plane).components.get(component, victim) != victim

    wait_for(again, f"the supervisor starts {component} again")
    return run_state(plane).components[component]


def kill_everything(plane: ControlPlane) -> None:
    """As when the machine loses power: every process at once, and every file stays."""
    for _ in range(20):
        mine = processes(plane)
        if not mine:
            return
        for process in mine:
            process.signal(signal.SIGKILL)
        for process in mine:
            process.wait_gone(5)
    raise AssertionError(f"these do not die: {_command_lines(plane)}")


@contextlib.contextmanager
def no_duplicate_pods(plane: ControlPlane) -> Iterator[None]:
    """Watches all the while that no two pods of one (role, index) are alive at once."""
    twins = _DuplicatePods()
    with watch_in_thread(plane.state.kubeconfig, Pod, twins.changed, labels=JOB):
        yield
    assert twins.found == []
    assert twins.seen, "the watch saw no pod at all"


class _DuplicatePods:
    def __init__(self) -> None:
        self._live: dict[tuple[str, ...], set[str]] = defaultdict(set)
        self.found: list[str] = []
        self.seen: set[str] = set()

    def changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        labels = pod.metadata.labels
        place = (pod.metadata.namespace, labels[JOB], labels.get(ROLE, ""), labels.get(INDEX, ""))
        self.seen.add(pod.metadata.uid)
        live = self._live[place]
        if change.new is not None and _is_live(change.new):
            live.add(pod.metadata.uid)
        else:
            live.discard(pod.metadata.uid)
        if len(live) > 1:
            self.found.append(f"{'/'.join(place)}: {sorted(live)}")


def _is_live(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def processes(plane: ControlPlane) -> list[Process]:
    """Every process of the control plane: components, and pods with all that their containers started."""
    found = []
    home = str(plane.home).encode() + b"/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if home in (entry / "cmdline").read_bytes() or home in (entry / "environ").read_bytes():
                found.append(Process.of(int(entry.name)))
    return [process for process in found if process.alive]


def leftovers(plane: ControlPlane) -> list[str]:
    """What of a control plane is still on the machine, outside of its state folder or locked inside it."""
    state = plane.state
    home = str(plane.home)
    left = [f"process {line}" for line in _command_lines(plane)]
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


def _command_lines(plane: ControlPlane) -> list[str]:
    told = []
    for process in processes(plane):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            told.append(f"{process.pid}: {words[:160]}")
    return told


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
