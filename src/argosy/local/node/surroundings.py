"""What all containers of a pod share while the shim looks after them. Standard library only."""

from collections.abc import Callable
from pathlib import Path

from argosy.local.node import cgroups
from argosy.local.node.launch import Launch
from argosy.local.node.loop import Loop

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

    def group(self, name: str) -> str:
        """The cgroup of a container."""
        return f"{self.launch['cgroup']}/{name}"
