"""What all containers of a pod share while the shim looks after them. Standard library only."""

from collections.abc import Callable
from pathlib import Path

from argosy.local.node import cgroups
from argosy.local.node.event_loop import Loop
from argosy.local.node.pid_namespace import PidSpace
from argosy.local.node.runspec import Launch

Changed = Callable[[], None]
Announce = Callable[[str, str, str], None]
"""Type, reason and message of an Event."""


class Surroundings:
    def __init__(
        self, launch: Launch, folder: Path, loop: Loop, changed: Changed, announce: Announce
    ) -> None:
        self.launch = launch
        self.folder = folder
        self.loop = loop
        self.changed = changed
        self.announce = announce
        self.hierarchy = cgroups.find() if launch["cgroup"] else None
        self._shared_pids: PidSpace | None = None

    def pids(self, scratch: Path) -> PidSpace:
        """The PID namespace for a run of a container: the pod's, if it shares one, or a new one."""
        if not self.launch["share_pids"]:
            return PidSpace(scratch / "proc")
        if self._shared_pids is None:
            self._shared_pids = PidSpace(self.folder / "proc")
        return self._shared_pids

    def group(self, name: str) -> str:
        """The cgroup of a container."""
        return f"{self.launch['cgroup']}/{name}"
