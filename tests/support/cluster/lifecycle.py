"""Starts, repairs and removes a cluster.

`up` starts what does not run, so that a second call changes nothing and a call after a failure repairs the
cluster: a killed program is started again with its data, a node as after a loss of power. Only if the network
is gone, a new cluster is created. `down` kills the first processes of the nodes and the control plane; the
kernel then removes the nodes' processes, mounts and interfaces, and `down` removes the cgroups and files.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from argosy.local.node.netlink import Netlink
from argosy.local.processes import Process
from tests.support import commands, servers
from tests.support.assets import Programs
from tests.support.builds import recipes
from tests.support.cluster import api, cgroups, components, criu, rootfs, store
from tests.support.cluster.components import Settings
from tests.support.cluster.layout import DOMAIN, Layout
from tests.support.cluster.machine import Spec
from tests.support.cluster.state import SWITCH, Notes, State, read, strays
from tests.support.servers import Server, is_ready

_START_SECONDS: Final = 60.0
_GONE_SECONDS: Final = 20.0
_CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler", "coredns")


class ClusterFailed(Exception):  # noqa: N818 - the name reads well without "Error"
    """The cluster cannot be started; the message has the reason and, if known, the remedy."""


def up(folder: Path, settings: Settings) -> Server:
    """Start a cluster in a folder, or repair the existing one; returns when pods can run."""
    programs = Programs(settings.version)
    _check_machine(programs)
    with _locked(folder):
        state = read(folder)
        if state is not None and state.settings != settings and not state.dead:
            raise ClusterFailed(f"another cluster runs in {folder}; scripts/kubernetes down ends it")
        if state is None or state.settings != settings or SWITCH in state.dead:
            _clear(folder)
            state = _create_cluster(folder, settings, programs)
        _Start(Notes(state), programs).run()
        return state.server


def down(folder: Path) -> None:
    """Remove a cluster completely, if there is one."""
    if not folder.exists() and not strays(folder):
        return
    with _locked(folder):
        _clear(folder)
        shutil.rmtree(folder)


def power_off(folder: Path, node: str) -> None:
    """Kill a node as a loss of power does; `up` starts it again."""
    state = read(folder)
    if state is None or node not in state.processes:
        raise ClusterFailed(f"no node {node} in {folder}")
    _kill([state.processes[node]])
    cgroups.remove(f"{state.layout.cgroup}/{node}")


def stop(folder: Path, name: str) -> None:
    """Kill a program such as `kube-apiserver` or `node-2/kubelet`; `up` starts it again."""
    state = read(folder)
    if state is None or name not in state.processes:
        raise ClusterFailed(f"no {name} in {folder}")
    _kill([state.processes[name]])


class _Start:
    """One run of `up`."""

    def __init__(self, notes: Notes, programs: Programs) -> None:
        self._notes = notes
        self._programs = programs
        self._layout = notes.state.layout
        self._settings = notes.state.settings
        self._server = notes.state.server
        self._before = frozenset(notes.state.dead)
        self._first = notes.state.processes

    def run(self) -> None:
        port = self._server.port
        control_plane = components.control_plane(self._layout, self._settings, self._programs, port)
        for name in ("etcd", "kube-apiserver"):
            self._start(name, control_plane[name])
        with ThreadPoolExecutor() as pool:
            lasting, own = rootfs.lasting_archives(self._programs), self._layout.folder / "argosy.tar"
            stored = store.prepare(self._programs, lasting)
            own_image = pool.submit(rootfs.write_own_archive, own)
            self._start("registry", components.image_registry(self._layout, [*lasting, own]))
            nodes = [pool.submit(self._start_runtime, name, stored, own_image) for name in self._layout.nodes]
            self._until("the API server is ready", "kube-apiserver", lambda: is_ready(self._server))
            for wanted in components.objects(self._layout):
                api.apply(self._server, wanted)
            rest = [pool.submit(self._start, name, control_plane[name]) for name in _CONTROLLERS]
            for done in nodes:
                done.result()
            for name in self._layout.nodes:
                rest += [pool.submit(self._start_in, name, part) for part in ("kubelet", "kube-proxy")]
            for done in rest:
                done.result()
        self._until_usable()

    def _start(self, name: str, command: Sequence[str]) -> None:
        if not self._notes.runs(name):
            log = self._layout.logs / f"{name}.log"
            words = ["--log", str(log), "--folder", str(self._layout.folder), "--", *command]
            self._notes.note(name, int(self._module("launch", *words)))

    def _start_in(self, node: str, part: str) -> None:
        name = f"{node}/{part}"
        if self._notes.runs(name):
            return
        command = components.node(self._layout, node, self._programs)[part]
        log = self._layout.logs / f"{node}-{part}.log"
        words = ["--node", str(self._notes.pid(node)), "--log", str(log), "--folder", "/"]
        for place in cgroups.create(f"{self._layout.cgroup}/{node}/system"):
            words += ["--cgroup", str(place)]
        self._notes.note(name, int(self._module("launch", *words, "--", *command)))

    def _start_runtime(self, node: str, stored: Path, own_image: "Future[None]") -> None:
        """Start a node and its containerd, and import all images."""
        if not self._notes.runs(node):
            self._boot(node, stored)
        if self._notes.runs(f"{node}/containerd"):
            return
        self._start_in(node, "containerd")
        socket_file = Path(f"/proc/{self._notes.pid(node)}/root/run/containerd/containerd.sock")
        self._until("containerd listens", f"{node}/containerd", socket_file.exists)
        ctr = [str(self._programs.find("ctr")), "--address", str(socket_file), "--namespace", "k8s.io"]
        own_image.result()
        _run([*ctr, "images", "import", str(self._layout.folder / "argosy.tar")])

    def _boot(self, node: str, stored: Path) -> None:
        folder = self._layout.node_folder(node)
        if not folder.exists():
            store.take_over(stored, folder / "var" / "lib" / "containerd")
        cgroups.remove(f"{self._layout.cgroup}/{node}")
        components.write_node_files(self._layout, self._settings, node, self._programs)
        spec = folder / "machine.json"
        spec.write_text(json.dumps(self._spec(node, stored)))
        self._notes.note(node, int(self._module("machine", str(spec))))

    def _spec(self, node: str, stored: Path) -> Spec:
        layout = self._layout
        others = [other for other in layout.nodes if other != node]
        folders = {str(self._programs.find(name).parent) for name in ("kubelet", "containerd")}
        return Spec(
            name=node,
            folder=str(layout.node_folder(node)),
            shown=[
                *self._settings.shown,
                str(layout.folder),
                *sorted(folders),
                *criu.install(self._programs),
            ],
            init=[str(self._programs.find("pause")), str(layout.node_folder(node)) + "/"],
            cgroups=[str(place) for place in cgroups.create(f"{layout.cgroup}/{node}")],
            store=str(stored),
            switch=self._notes.pid(SWITCH),
            link=node,
            address=layout.node_address(node),
            prefix=layout.machines.prefixlen,
            gateway=layout.host_address,
            routes=[
                {
                    "network": str(layout.node_pods(other).network_address),
                    "prefix": layout.node_pods(other).prefixlen,
                    "gateway": layout.node_address(other),
                }
                for other in others
            ],
            nameserver=layout.host_address,
            criu_options=criu.OPTIONS,
            links=self._links(node),
        )

    def _links(self, node: str) -> dict[str, str]:
        """Return what a node agent looks for on its node, beside CRIU if that is not the machine's own."""
        programs = {name: self._programs.find(name) for name in ("containerd", "ctr")}
        if (command := self._programs.cache / criu.COMMAND).exists():
            programs[criu.COMMAND] = command
        links = {f"/usr/local/bin/{name}": str(path) for name, path in programs.items()}
        config = self._layout.node_folder(node) / "containerd.toml"
        return {**links, "/etc/containerd/config.toml": str(config)}

    def _module(self, name: str, *words: str) -> str:
        return module(self._programs, name, *words)

    def _until_usable(self) -> None:
        wanted, layout = set(self._layout.nodes), self._layout
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        name = f"kubernetes.default.svc.{DOMAIN}"
        self._until("nodes are ready", "node-1/kubelet", lambda: api.ready_nodes(self._server) >= wanted)
        self._until(
            "the first service account is there",
            "kube-controller-manager",
            lambda: api.get(self._server, account) is not None,
        )
        self._until("names resolve", "coredns", lambda: api.resolves(layout.host_address, name))
        self._until("services answer", "node-1/kube-proxy", lambda: api.resolves(layout.dns_address, name))

    def _until(self, what: str, part: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raises with the log if a component ends or the time is up."""
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            dead = self._ended_components()
            if dead or time.monotonic() > deadline:
                part = dead[0] if dead else part
                reason = "ended" if dead else f"timed out after {_START_SECONDS:.0f} s, waiting until {what}"
                log = self._layout.logs / f"{part.replace('/', '-')}.log"
                raise ClusterFailed(f"{part}: {reason}; the last lines of {log}:\n{servers.tail(log)}")
            time.sleep(0.05)

    def _ended_components(self) -> list[str]:
        """The components that have ended since this `up` began, except those not restarted yet."""
        now, then = self._notes.state.processes, self._first
        return [
            name for name in self._notes.state.dead if name not in self._before or now[name] != then[name]
        ]


def module(programs: Programs, name: str, *words: str) -> str:
    """Run one of the modules of this package that start a process; returns the pid that it prints."""
    path = f"{programs.cache}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    command = commands.module(f"tests.support.cluster.{name}", *words)
    return _run(command, commands.module_environment(PATH=path)).strip()


def _create_cluster(folder: Path, settings: Settings, programs: Programs) -> State:
    """Create the switch, which determines the slot, and the keys and files of a new cluster."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    pid, slot = module(programs, "switch", str(programs.find("pause")), f"{folder}/switch").split()
    layout = Layout(folder, int(slot), tuple(f"node-{number + 1}" for number in range(settings.nodes)))
    try:
        _connect(layout)
        port = 6443
        api_address = str(layout.services.network_address + 1)
        servers.prepare_real(folder, (layout.host_address, api_address))
        server = servers.describe("kubernetes", folder, layout.host_address, port)
        components.write_identities(layout, server.url)
        components.write_host_files(layout, settings)
    except BaseException:
        _kill([Process.of(int(pid))])
        raise
    return State(settings, layout, server, {SWITCH: Process.of(int(pid))})


def _connect(layout: Layout) -> None:
    """Set the host's address in the cluster and its routes to pods and services."""
    with Netlink() as netlink:
        index = netlink.links()[layout.interface]
        netlink.set_up(index)
        netlink.add_address(index, layout.host_address, layout.machines.prefixlen)
        first = layout.node_address(layout.nodes[0])
        netlink.add_route(str(layout.services.network_address), layout.services.prefixlen, first)
        for node in layout.nodes:
            pods = layout.node_pods(node)
            netlink.add_route(str(pods.network_address), pods.prefixlen, layout.node_address(node))


def _clear(folder: Path) -> None:
    """Kill all processes, recorded or found by the folder, and empty the folder."""
    state = read(folder)
    if state is None and folder.exists() and any(folder.iterdir()) and not (folder / "tokens.csv").exists():
        raise ClusterFailed(f"{folder} contains other files; choose another --dir")
    stray_processes = strays(folder)
    slots = [
        words[-1] for words in stray_processes.values() if len(words) > 2 and words[1] == f"{folder}/switch"
    ]
    layouts = [state.layout] if state is not None else [Layout(folder, int(slot), ()) for slot in slots]
    recorded = state.processes.values() if state is not None else ()
    _kill({*recorded, *stray_processes})
    for layout in layouts:
        _disconnect(layout)
        cgroups.remove(layout.cgroup)
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _disconnect(layout: Layout) -> None:
    with Netlink() as netlink:
        netlink.delete_link(layout.interface)


def _kill(processes: Iterable[Process]) -> None:
    processes = list(processes)
    for process in processes:
        process.signal(signal.SIGKILL)
    for process in processes:
        if not process.wait_gone(_GONE_SECONDS):
            raise ClusterFailed(f"process {process.pid} does not end")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created, so that only one `up` or `down` runs."""
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                yield
                return
        finally:
            os.close(handle)


def _check_machine(programs: Programs) -> None:
    """Raise ClusterFailed if the machine lacks something."""
    if os.geteuid() != 0:
        raise ClusterFailed("a cluster with nodes needs root; up --apiserver-only does not")
    if not cgroups.hierarchies():
        raise ClusterFailed(f"no cgroups are mounted at {cgroups.ROOT}")
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise ClusterFailed("the kernel has no overlay file system; modprobe overlay loads it")
    for program in ("nft", *reversed([recipe.program for recipe in recipes(programs)])):
        programs.find(program)


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "nothing said").splitlines()[-1]
        raise ClusterFailed(f"{' '.join(command[:4])} … ended with {done.returncode}: {last}")
    return done.stdout
