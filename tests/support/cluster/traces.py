"""Lists what a cluster could leave behind on the machine, so that tests can compare before and after.

Other clusters and local control planes may run at the same time. Their interfaces, routes and cgroups have
other names and are ignored; processes and namespaces are compared with those that the cluster had.
"""

import os
import socket
from pathlib import Path
from typing import Final

from msgspec import Struct

from argosy.local.processes import Process
from tests.support.cluster import cgroups
from tests.support.cluster.layout import SLOTS, interface
from tests.support.cluster.state import State, strays

_SETTINGS: Final = (
    *("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "vm/overcommit_memory"),
    *("vm/panic_on_oom", "net/netfilter/nf_conntrack_max"),
)
_LOCAL: Final = "ayup"
"""Prefix of the interfaces of local control planes."""
_WORDS: Final = ("argosy-k", "kubelet", "containerd", "kubernetes", "/netns")


class MachineState(Struct, frozen=True):
    """What is visible on the machine itself, outside of the nodes."""

    interfaces: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    named_networks: frozenset[str]
    cgroups: frozenset[str]
    settings: dict[str, str]


class Contents(Struct, frozen=True):
    """The processes of a running cluster, with host pids, and the numbers of their namespaces."""

    processes: dict[int, Process]
    namespaces: frozenset[str]


def machine_state(slot: int | None = None) -> MachineState:
    """The current state, without the interfaces and cgroups of clusters in other slots than this one."""
    interfaces = {name for _, name in socket.if_nameindex()}
    foreign = tuple(interface(other) for other in range(SLOTS) if other != slot)
    routes = Path("/proc/net/route").read_text().splitlines()[1:]
    return MachineState(
        interfaces=frozenset(
            name for name in interfaces if not name.startswith(_LOCAL) and name not in foreign
        ),
        routes=frozenset(
            line for line in routes if not line.startswith(_LOCAL) and line.split()[0] not in foreign
        ),
        mounts=frozenset(
            line.split(" ", 3)[3]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if any(word in line for word in _WORDS)
        ),
        named_networks=frozenset(str(path) for path in Path("/run").glob("netns/*")),
        cgroups=frozenset(
            str(path)
            for hierarchy in cgroups.hierarchies()
            for pattern in ((f"argosy-kubernetes-{slot}",) if slot is not None else ()) + ("kubepods*",)
            for path in hierarchy.glob(pattern)
        ),
        settings={name: path.read_text() for name in _SETTINGS if (path := Path("/proc/sys", name)).exists()},
    )


def cluster_contents(state: State) -> Contents:
    """All processes of a cluster, and those of their namespaces that are not the machine's."""
    own = _namespaces(os.getpid())
    nodes = {_namespaces(state.processes[name].pid)["pid"] for name in state.layout.nodes}
    processes = {process.pid: process for process in strays(state.layout.folder)}
    spaces: set[str] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        its = _namespaces(int(entry.name))
        if its.get("pid") in nodes:
            processes[int(entry.name)] = Process.of(int(entry.name))
        if int(entry.name) in processes:
            spaces |= set(its.values()) - set(own.values())
    return Contents(processes, frozenset(spaces))


def remaining(contents: Contents) -> Contents:
    """The part of it that still exists: live processes, and namespaces that any process is in."""
    alive = {pid: process for pid, process in contents.processes.items() if process.alive}
    held: set[str] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            held |= set(_namespaces(int(entry.name)).values())
    return Contents(alive, frozenset(held & contents.namespaces))


def _namespaces(pid: int) -> dict[str, str]:
    namespaces = {}
    for kind in ("cgroup", "ipc", "mnt", "net", "pid", "uts"):
        try:
            namespaces[kind] = str(Path(f"/proc/{pid}/ns/{kind}").readlink())
        except OSError:
            continue
    return namespaces
