"""Holds the state that a pod's containers share in the shim. Standard library only."""

from collections.abc import Callable
from pathlib import Path

from argosy.local.node import cgroups
from argosy.local.node.event_loop import EventLoop
from argosy.local.node.pid_namespace import PidNamespace
from argosy.local.node.runspec import RunSpec

NotifyChange = Callable[[], None]
RecordEvent = Callable[[str, str, str], None]
"""Type, reason and message of an Event."""


class PodContext:
    def __init__(
        self,
        runspec: RunSpec,
        folder: Path,
        loop: EventLoop,
        notify_change: NotifyChange,
        record_event: RecordEvent,
    ) -> None:
        self.runspec = runspec
        self.folder = folder
        self.loop = loop
        self.notify_change = notify_change
        self.record_event = record_event
        self.cgroup_hierarchy = cgroups.find_hierarchy() if runspec["cgroup"] else None
        self._shared_pid_namespace: PidNamespace | None = None

    def pid_namespace(self, scratch: Path) -> PidNamespace:
        """Return the PID namespace for a run of a container: the pod's if it shares one, else a new one."""
        if not self.runspec["share_pids"]:
            return PidNamespace(scratch / "proc")
        if self._shared_pid_namespace is None:
            self._shared_pid_namespace = PidNamespace(self.folder / "proc")
        return self._shared_pid_namespace

    def cgroup(self, name: str) -> str:
        """Return the cgroup of a container."""
        return f"{self.runspec['cgroup']}/{name}"
