"""Creates and removes the cgroups of a cluster's nodes in every hierarchy of the machine.

Both versions are supported: v1 with a hierarchy per controller, and v2. Below the cgroup of a node, `system`
contains the programs of the node (in v2 a cgroup with processes cannot enable controllers for children), and
everything else belongs to its kubelet.
"""

import errno
import os
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")
_GONE_SECONDS: Final = 10.0


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The roots of all hierarchies that are mounted at the usual path."""
    if (root / "cgroup.procs").exists():
        return [root]
    return sorted(
        place for place in root.iterdir() if (place / "cgroup.procs").exists() and not place.is_symlink()
    )


def create(name: str, root: Path = ROOT) -> list[Path]:
    """Create the cgroup `name`, a path below the root, in every hierarchy; returns the absolute paths."""
    created = []
    for hierarchy in hierarchies(root):
        place = hierarchy
        for part in Path(name).parts:
            _enable_controllers(place)
            place = place / part
            place.mkdir(exist_ok=True)
            _copy_cpuset(place)
        created.append(place)
    return created


def remove(name: str, root: Path = ROOT) -> None:
    """Remove the cgroup and its children, after its processes were killed; the last may still be exiting."""
    deadline = time.monotonic() + _GONE_SECONDS
    for hierarchy in hierarchies(root):
        if not (hierarchy / name).is_dir():
            continue
        for place, _, _ in os.walk(hierarchy / name, topdown=False):
            _remove_one(Path(place), deadline)


def _remove_one(place: Path, deadline: float) -> None:
    while True:
        try:
            place.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _enable_controllers(place: Path) -> None:
    """Enable controllers for the children of a v2 cgroup."""
    if (place / "cgroup.subtree_control").exists():
        for controller in (place / "cgroup.controllers").read_text().split():
            try:
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:  # not available here; the kubelet reports a missing controller that it requires
                continue


def _copy_cpuset(place: Path) -> None:
    """Copy the cpuset of the parent of a v1 cgroup: an empty one accepts no process."""
    for name in _INHERITED:
        own = place / name
        if own.exists() and not own.read_text().strip() and not (place / "cgroup.controllers").exists():
            own.write_text((place.parent / name).read_text())
