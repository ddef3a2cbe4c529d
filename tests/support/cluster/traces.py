"""What a cluster could leave behind on a machine, listed, so that before and after can be compared.

Other work may go on beside: processes and namespaces are those that the cluster was seen to have, the rest is
what the machine shows of network, mounts, cgroups and settings that clusters share with everybody.
"""

import os
import socket
from pathlib import Path
from typing import Final

from msgspec import Struct

from argosy.local.processes import Process
from tests.support.cluster import cgroups
from tests.support.cluster.state import State, strays

_SETTINGS: Final = (
    *("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "vm/overcommit_memory"),
    *("vm/panic_on_oom", "net/netfilter/nf_conntrack_max"),
)
_LOCAL: Final = "ayup"
"""What the interfaces of local control planes, which come and go on the same machine, begin with."""
_WORDS: Final = ("argosy-k", "kubelet", "containerd", "kubernetes", "/netns")


class Traces(Struct, frozen=True):
    """What is on the machine itself, outside of the nodes."""

    interfaces: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    named_networks: frozenset[str]
    cgroups: frozenset[str]
    settings: dict[str, str]


class Inside(Struct, frozen=True):
    """What belongs to one running cluster: processes as the host sees them, namespaces by number."""

    processes: dict[int, Process]
    namespaces: frozenset[str]


def traces() -> Traces:
    """The machine as it is now."""
    return Traces(
        interfaces=frozenset(name for _, name in socket.if_nameindex() if not name.startswith(_LOCAL)),
        routes=frozenset(
            line for line in Path("/proc/net/route").read_text().splitlines() if not line.startswith(_LOCAL)
        ),
        mounts=frozenset(
            line.split(" ", 3)[3]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if any(word in line for word in _WORDS)
        ),
        named_networks=frozenset(str(place) for place in Path("/run").glob("netns/*")),
        cgroups=frozenset(
            str(place)
            for hierarchy in cgroups.hierarchies()
            for pattern in ("argosy-kubernetes-*", "kubepods*")
            for place in hierarchy.glob(pattern)
        ),
        settings={name: path.read_text() for name in _SETTINGS if (path := Path("/proc/sys", name)).exists()},
    )


def inside(state: State) -> Inside:
    """All processes of a cluster and all their namespaces that are not the machine's."""
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
    return Inside(processes, frozenset(spaces))


def left(seen: Inside) -> Inside:
    """What still is of what was seen: processes, and namespaces that any process is in."""
    alive = {pid: process for pid, process in seen.processes.items() if process.alive}
    held: set[str] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            held |= set(_namespaces(int(entry.name)).values())
    return Inside(alive, frozenset(held & seen.namespaces))


def _namespaces(pid: int) -> dict[str, str]:
    found = {}
    for kind in ("cgroup", "ipc", "mnt", "net", "pid", "uts"):
        try:
            found[kind] = str(Path(f"/proc/{pid}/ns/{kind}").readlink())
        except OSError:
            continue
    return found
