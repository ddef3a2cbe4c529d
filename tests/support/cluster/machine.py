"""The first process of a node: creates the namespaces of the node and waits in them.

A node has its own processes, network, mounts, host name and cgroup root. Its file system is the host's, with
all writes in memory, and a few large folders on disk. Programs of a node therefore run at their usual paths,
and all their effects end with this process: when it is killed, the kernel ends the processes of the node and
removes its mounts, interfaces and firewall rules. Only the cgroup stays, for `cgroups`.

Standard library only. Run as `python -m tests.support.cluster.machine SPEC`; prints the first process's pid
when the node is ready.
"""

import errno
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Final, TypedDict

from argosy.local.node import kernel
from argosy.local.node.netlink import Netlink

NEW_CGROUP: Final = 0x02000000
_SHARED: Final = 1 << 20
_GONE_SECONDS: Final = 10.0
_CRIU_CONFIG: Final = Path("/etc/criu/runc.conf")
_OLD: Final = ".argosy-host"
_ON_DISK: Final = ("var/lib/containerd", "var/lib/kubelet", "var/log/pods")
_UNTOUCHED: Final = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings of the whole machine that a kubelet changes; a node has ordinary files instead."""


class Route(TypedDict):
    network: str
    prefix: int
    gateway: str


class Spec(TypedDict):
    name: str
    folder: str
    shown: list[str]
    """Folders of the host that the node mounts at the same paths."""
    init: list[str]
    """The command that the node's first process becomes."""
    cgroups: list[str]
    """The node's cgroup in each hierarchy: absolute paths."""
    store: str
    """The folder of unpacked images (`store`)."""
    switch: int
    """The pid of the process that holds the switch."""
    link: str
    address: str
    prefix: int
    gateway: str
    routes: list[Route]
    nameserver: str
    criu_options: str
    """What runc tells CRIU to do with connections."""
    links: dict[str, str]
    """Symbolic links in the node: programs and configuration at the paths where administrators have them."""


def main() -> int:
    """Create the node and print its pid; returns the exit code."""
    spec: Spec = json.loads(Path(sys.argv[1]).read_text())
    for cgroup in spec["cgroups"]:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    with Path(f"/proc/{spec['switch']}/ns/net").open() as switch:
        kernel.setns(switch.fileno(), kernel.NEW_NET)
    at_switch = Netlink()
    read_end, write_end = os.pipe()
    kernel.unshare(
        kernel.NEW_MOUNT | kernel.NEW_UTS | kernel.NEW_IPC | kernel.NEW_PID | kernel.NEW_NET | NEW_CGROUP
    )
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _become_node(spec, at_switch, write_end)
    os.close(write_end)
    if os.read(read_end, 1) != b"+":
        os.waitpid(pid, 0)
        return 1
    sys.stdout.write(f"{pid}\n")
    return 0


def _become_node(spec: Spec, at_switch: Netlink, write_end: int) -> None:
    os.setsid()
    socket.sethostname(spec["name"])
    _wire(spec, at_switch)
    _enter_root(spec)
    os.write(write_end, b"+")
    become(spec["init"], os.open(os.devnull, os.O_WRONLY))


def become(command: list[str], output: int) -> None:
    """Execute another program in this process, without open files except its output."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(command[0], command)


def _wire(spec: Spec, at_switch: Netlink) -> None:
    _plug_in(at_switch, spec["link"])
    at_switch.close()
    with Netlink() as netlink:
        links = netlink.links()
        for name in ("lo", "eth0"):
            netlink.set_up(links[name])
        netlink.add_address(links["eth0"], spec["address"], spec["prefix"])
        netlink.add_default_route(spec["gateway"])
        for route in spec["routes"]:
            netlink.add_route(route["network"], route["prefix"], route["gateway"])


def _plug_in(at_switch: Netlink, link: str) -> None:
    """Connect to the switch, once the link of a node that was powered off is gone."""
    bridge = at_switch.index("switch")
    assert bridge is not None
    deadline = time.monotonic() + _GONE_SECONDS
    with Path("/proc/self/ns/net").open() as own:
        while True:
            try:
                at_switch.add_veth(link, master=bridge, peer="eth0", peer_namespace=own.fileno(), mtu=1500)
            except OSError as error:
                if error.errno != errno.EEXIST or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


def _enter_root(spec: Spec) -> None:
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    layers = Path(spec["folder"]) / "root"
    layers.mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(layers), "tmpfs", 0, "mode=755")
    root = layers / "root"
    for place in (layers / "upper", layers / "work", root):
        place.mkdir()
        place.chmod(0o755)
    kernel.mount(
        "overlay",
        str(root),
        "overlay",
        0,
        f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work",
    )
    (root / _OLD).mkdir()
    kernel.pivot_root(str(root), str(root / _OLD))
    os.chdir("/")
    _system_folders()
    for folder in spec["shown"]:
        _bind(f"/{_OLD}{folder}", folder)
    for folder in _ON_DISK:
        _bind(f"/{_OLD}{spec['folder']}/{folder}", f"/{folder}")
    _show_store(Path(f"/{_OLD}{spec['store']}"), Path("/var/lib/containerd"))
    _cgroups()
    _settings(Path(f"/{_OLD}{spec['folder']}/sys"))
    resolver = Path("/etc/resolv.conf")
    resolver.unlink(missing_ok=True)
    resolver.write_text(f"nameserver {spec['nameserver']}\n")
    _CRIU_CONFIG.parent.mkdir(parents=True, exist_ok=True)
    _CRIU_CONFIG.write_text(spec["criu_options"])
    for link, target in spec["links"].items():
        Path(link).parent.mkdir(parents=True, exist_ok=True)
        Path(link).unlink(missing_ok=True)
        Path(link).symlink_to(target)
    kernel.unmount(f"/{_OLD}")
    Path("/", _OLD).rmdir()
    # A volume that a container mounts may be asked to appear in others.
    kernel.mount("none", "/", flags=kernel.RECURSIVE | _SHARED)


def _system_folders() -> None:
    for name in ("proc", "sys", "dev", "run", "tmp"):
        Path("/", name).mkdir(exist_ok=True)
    kernel.mount("proc", "/proc", "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    kernel.mount("sysfs", "/sys", "sysfs", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    kernel.mount(f"/{_OLD}/dev", "/dev", flags=kernel.BIND | kernel.RECURSIVE)
    kernel.mount("tmpfs", "/run", "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=755")
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=1777")


def _bind(source: str, target: str) -> None:
    Path(source).mkdir(parents=True, exist_ok=True)
    Path(target).mkdir(parents=True, exist_ok=True)
    kernel.mount(source, target, flags=kernel.BIND | kernel.RECURSIVE)


def _show_store(store: Path, root: Path) -> None:
    """Mount the layers and contents of the unpacked images, read-only, into the node's containerd folder."""
    for pattern in (
        "io.containerd.snapshotter.v1.overlayfs/snapshots/*",
        "io.containerd.content.*/blobs/*/*",
    ):
        for source in store.glob(pattern):
            target = root / source.relative_to(store)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
            kernel.mount(str(source), str(target), flags=kernel.BIND)
            kernel.mount("none", str(target), flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY)


def _cgroups() -> None:
    """Mount the cgroup hierarchies again: in this namespace the cgroup of the node is the root."""
    hierarchies = [line.split(":", 2)[:2] for line in Path("/proc/self/cgroup").read_text().splitlines()]
    old = [controllers for number, controllers in hierarchies if number != "0"]
    if not old:
        kernel.mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
        return
    kernel.mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")
    for controllers in old:
        place = Path("/sys/fs/cgroup", controllers.removeprefix("name="))
        place.mkdir()
        kernel.mount("cgroup", str(place), "cgroup", 0, controllers)


def _settings(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in _UNTOUCHED:
        setting = Path("/proc/sys", name)
        if setting.exists():
            instead = folder / name.replace("/", ".")
            instead.write_text(setting.read_text())
            kernel.mount(str(instead), str(setting), flags=kernel.BIND)


if __name__ == "__main__":
    sys.exit(main())
