"""Records the processes of a cluster at every change, so that another command can repair or remove it.

A process is recorded by pid and start time. If the record is lost, processes are found by their command
lines: every process on the host has the folder of the cluster as an argument.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from argosy.local.processes import Process
from tests.support.assets import cache
from tests.support.cluster import registry
from tests.support.cluster.components import Settings
from tests.support.cluster.layout import Layout
from tests.support.servers import Server

SWITCH: Final = "switch"
_FILE: Final = "cluster.json"


class State(Struct, frozen=True):
    """The contents of cluster.json in the cluster's folder."""

    settings: Settings
    layout: Layout
    server: Server
    processes: dict[str, Process]
    """By name; those inside a node have its name as a prefix: `node-1/kubelet`."""

    @property
    def dead(self) -> list[str]:
        return [name for name, process in self.processes.items() if not process.alive]


class Notes:
    """The state of a cluster that is being started; every change is written to disk at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._write()

    @property
    def state(self) -> State:
        return self._state

    def runs(self, name: str) -> bool:
        process = self._state.processes.get(name)
        return process is not None and process.alive

    def pid(self, name: str) -> int:
        return self._state.processes[name].pid

    def note(self, name: str, pid: int) -> None:
        with self._lock:
            processes = {**self._state.processes, name: Process.of(pid)}
            self._state = msgspec.structs.replace(self._state, processes=processes)
            self._write()

    def _write(self) -> None:
        path = self._state.layout.folder / _FILE
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(self._state, enc_hook=str))
        unfinished.replace(path)


def read(folder: Path) -> State | None:
    """The recorded state of a folder, if any; its processes may have ended."""
    try:
        content = (folder / _FILE).read_bytes()
        return msgspec.json.decode(content, type=State, dec_hook=lambda kind, value: kind(value))
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def strays(folder: Path, environment: Mapping[str, str] = os.environ) -> dict[Process, list[str]]:
    """The processes whose command line has this folder, with the words of their command lines."""
    programs = tuple(str(place) for place in (cache(), environment.get("KUBEBUILDER_ASSETS")) if place)
    processes: dict[Process, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        process = Process.of(int(entry.name))
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            program = str((entry / "exe").readlink())
        except OSError:
            continue
        ours = program.startswith(programs) or registry.__name__ in words
        if ours and any(f"{folder}/" in word for word in words):
            processes[process] = words
    return processes
