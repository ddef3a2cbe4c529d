"""The cgroups of a cluster's nodes: made in every hierarchy of the machine, and taken away again.

Both forms are served: the old one, a hierarchy for each controller, and the unified one. Below a node's
cgroup, `system` holds the node's own programs (in the unified form a cgroup with processes may not hand
controllers on), and everything else belongs to its kubelet.
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
    """The roots of all hierarchies that are mounted at the usual place."""
    if (root / "cgroup.procs").exists():
        return [root]
    return sorted(
        place for place in root.iterdir() if (place / "cgroup.procs").exists() and not place.is_symlink()
    )


def create(name: str, root: Path = ROOT) -> list[Path]:
    """Make the cgroup `name`, a path below the root, in every hierarchy; all of them, as absolute paths."""
    made = []
    for hierarchy in hierarchies(root):
        place = hierarchy
        for part in Path(name).parts:
            _hand_on(place)
            place = place / part
            place.mkdir(exist_ok=True)
            _inherit(place)
        made.append(place)
    return made


def remove(name: str, root: Path = ROOT) -> None:
    """Take away the cgroup and all below it. Its processes have been killed; the last may still be going."""
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


def _hand_on(place: Path) -> None:
    """In the unified form children have the controllers that their parent hands on."""
    if (place / "cgroup.subtree_control").exists():
        for controller in (place / "cgroup.controllers").read_text().split():
            try:
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
            except (
                OSError
            ):  # this one is not to be had below here; the kubelet says which it cannot do without
                continue


def _inherit(place: Path) -> None:
    """In the old form a cpuset is empty until it is set, and takes no process."""
    for name in _INHERITED:
        own = place / name
        if own.exists() and not own.read_text().strip() and not (place / "cgroup.controllers").exists():
            own.write_text((place.parent / name).read_text())
