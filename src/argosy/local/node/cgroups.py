"""Sets memory and CPU limits by cgroup, version 1 or 2, where this process may write to them.

Where it may not (rootless without delegation) `find_hierarchy` returns None, containers fall back to rlimits,
and the node's notes mention it. The cgroup's own counter tells an OOM kill from any other SIGKILL. Standard
library only.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

_PERIOD_MICROSECONDS: Final = 100_000
_MOUNT: Final = Path("/sys/fs/cgroup")


class Hierarchy(NamedTuple):
    version: int
    memory: Path
    cpu: Path

    def paths(self, group: str) -> list[Path]:
        return [self.memory / group] if self.memory == self.cpu else [self.memory / group, self.cpu / group]


def find_hierarchy(mount: Path = _MOUNT) -> Hierarchy | None:
    """Return the hierarchy whose memory and CPU controllers are writable, or None."""
    controllers = mount / "cgroup.controllers"
    if controllers.exists():
        have = controllers.read_text().split()
        if {"memory", "cpu"} <= set(have) and os.access(mount / "cgroup.subtree_control", os.W_OK):
            return Hierarchy(2, mount, mount)
        return None
    memory, cpu = mount / "memory", mount / "cpu"
    if (memory / "tasks").exists() and (cpu / "tasks").exists() and os.access(memory, os.W_OK):
        return Hierarchy(1, memory, cpu)
    return None


def find_usable_hierarchy(group: str, mount: Path = _MOUNT) -> Hierarchy | None:
    """Return the hierarchy in which `group` can be created, or None.

    Files that look writable may not be: in a container, the group that is seen as the root has processes, and
    version 2 hands no controllers down from there.
    """
    hierarchy = find_hierarchy(mount)
    if hierarchy is None:
        return None
    try:
        create(hierarchy, f"{group}/trial", None, None)
    except OSError:
        return None
    finally:
        remove(hierarchy, f"{group}/trial")
    return hierarchy


def create(hierarchy: Hierarchy, group: str, memory: int | None, cpu: int | None) -> None:
    """Create a group and its parents, and set its limits; `cpu` is in thousandths of a core."""
    if hierarchy.version == 2:
        _delegate(hierarchy.memory, group)
    for path in hierarchy.paths(group):
        path.mkdir(parents=True, exist_ok=True)
    if memory is not None:
        name = "memory.max" if hierarchy.version == 2 else "memory.limit_in_bytes"
        (hierarchy.memory / group / name).write_text(str(memory))
    if cpu is not None:
        quota = max(1000, cpu * _PERIOD_MICROSECONDS // 1000)
        if hierarchy.version == 2:
            (hierarchy.cpu / group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
        else:
            (hierarchy.cpu / group / "cpu.cfs_quota_us").write_text(str(quota))


def join(hierarchy: Hierarchy, group: str, pid: int) -> None:
    """Move a process into the group."""
    for path in hierarchy.paths(group):
        (path / "cgroup.procs").write_text(str(pid))


def processes(hierarchy: Hierarchy, group: str) -> set[int]:
    """Return the processes in the group, and in groups that they created below it."""
    pids: set[int] = set()
    for folder, _, _ in os.walk(hierarchy.memory / group):
        with contextlib.suppress(OSError):
            pids |= {int(line) for line in Path(folder, "cgroup.procs").read_text().split()}
    return pids - {0}  # processes of another PID namespace are shown as 0


def oom_kill_count(hierarchy: Hierarchy, group: str) -> int:
    name = "memory.events" if hierarchy.version == 2 else "memory.oom_control"
    try:
        lines = (hierarchy.memory / group / name).read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def remove(hierarchy: Hierarchy, group: str) -> bool:
    """Remove a group with its subgroups; return False while one has processes, such as just killed ones."""
    paths = hierarchy.paths(group)
    for path in paths:
        if path.is_dir():
            for folder, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
    return not any(path.exists() for path in paths)


def _delegate(mount: Path, group: str) -> None:
    """Enable controllers level by level, as cgroup version 2 requires."""
    path = mount
    for part in Path(group).parts:
        (path / "cgroup.subtree_control").write_text("+memory +cpu")
        path = path / part
        path.mkdir(exist_ok=True)
