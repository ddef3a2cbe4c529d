"""Builds a container's root file system from an image folder or the host's root, with private writes.

As root it is one overlay. A user namespace may not use `/` itself as a lower layer (its submounts are
locked), so there each top-level folder gets its own overlay on a tmpfs. A folder that cannot be overlaid (it
has a mount below it, or the kernel does not support overlays for users) is shown read-only with everything
mounted in it; one that cannot be made read-only is left out. A pod's writes never reach the host. Standard
library only; runs in the container's process, in its own mount namespace.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final, Literal

from argosy.local.node import kernel
from argosy.local.node.kernel import BIND, NO_DEV, READ_ONLY, RECURSIVE

PER_CONTAINER: Final = ("proc", "sys", "dev", "tmp", "run")
"""Top-level folders of which every container gets its own."""

Visibility = Literal["read-only", "hidden"]


def overlay_root(image: str, root: Path, scratch: Path, flags: int) -> None:
    """Mount one overlay over the whole image; the upper layer is a tmpfs if the disk cannot hold it."""
    upper, work = scratch / "upper", scratch / "work"
    upper.chmod(0o755)
    try:
        kernel.mount(
            "overlay", str(root), "overlay", flags, f"lowerdir={image},upperdir={upper},workdir={work}"
        )
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
            raise
        layers = scratch / "layers"
        layers.mkdir(exist_ok=True)
        kernel.mount("tmpfs", str(layers), "tmpfs", flags, "mode=755")
        for name in ("upper", "work"):
            (layers / name).mkdir(mode=0o755)
        options = f"lowerdir={image},upperdir={layers}/upper,workdir={layers}/work"
        kernel.mount("overlay", str(root), "overlay", flags, options)


def rootless_root(image: str, root: Path, layers: Path) -> dict[str, Visibility]:
    """Mount a tmpfs with an overlay for each top-level folder; links are copied, files shown read-only.

    Returns the folders that could not be overlaid.
    """
    layers.mkdir(exist_ok=True)
    for place in (root, layers):
        kernel.mount("tmpfs", str(place), "tmpfs", NO_DEV, "mode=755")
    restricted: dict[str, Visibility] = {}
    for entry in sorted(Path(image).iterdir()):
        place = root / entry.name
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif entry.is_dir():
            place.mkdir(mode=0o755)
            if entry.name not in PER_CONTAINER and not _overlay_folder(entry, place, layers / entry.name):
                restricted[entry.name] = _show_read_only(entry, place)
        elif entry.is_file():
            place.touch()
            _show_read_only(entry, place)
    for name in (*PER_CONTAINER, "etc"):
        (root / name).mkdir(mode=0o755, exist_ok=True)
    return restricted


def rootless_notes(folder: Path, hidden: list[str]) -> list[str]:
    """Return notes for users about folders of the host in rootless pods.

    Builds a root in a child's own mount namespace, to see what this kernel and these mounts allow.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, "; ".join(_survey(folder, hidden)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    output = os.read(reader, 1 << 16).decode()  # a few lines, written at once
    os.close(reader)
    os.waitpid(pid, 0)
    return output.split("; ") if output else []


def _survey(folder: Path, hidden: list[str]) -> list[str]:
    kernel.unshare(kernel.NEW_MOUNT)
    kernel.mount("none", "/", flags=kernel.PRIVATE | RECURSIVE)
    kernel.mount("tmpfs", str(folder), "tmpfs", NO_DEV, "mode=700")
    (folder / "root").mkdir()
    restricted = rootless_root("/", folder / "root", folder / "layers")
    readable = {
        name: shown
        for name, shown in restricted.items()
        if f"/{name}" not in hidden and os.access(f"/{name}", os.R_OK | os.X_OK)
    }
    notes = []
    for shown in ("read-only", "hidden"):
        names = ", ".join(f"/{name}" for name, how in readable.items() if how == shown)
        if names:
            notes.append(f"{shown} in pods, as the kernel cannot overlay them: {names}")
    return notes


def _overlay_folder(lower: Path, place: Path, layer: Path) -> bool:
    (layer / "upper").mkdir(parents=True, mode=0o755)
    (layer / "work").mkdir()
    options = f"userxattr,lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work"
    try:
        kernel.mount("overlay", str(place), "overlay", NO_DEV, options)
    except OSError:
        return False
    return True


def _show_read_only(source: Path, place: Path) -> Visibility:
    try:
        kernel.mount(str(source), str(place), flags=BIND | RECURSIVE)
    except OSError:
        return "hidden"
    try:
        kernel.restrict_mount(str(place), READ_ONLY | NO_DEV)
    except OSError:  # mounts below it would stay writable, so it is left out
        with contextlib.suppress(OSError):
            kernel.unmount(str(place))
            return "hidden"
        raise
    return "read-only"
