"""Builds a container's view of the file system: its root, and what the pod may see of the host.

Everything is mounted after pivot_root, while the host is still reachable below a folder with a random name:
the kernel itself then resolves symbolic links such as /var/run, and neither an image nor a pod's mount paths
can refer to the host. Unless a container is privileged, only the device files in /dev can be opened. Standard
library only; runs in the container's process, in its own mount namespace.
"""

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final, NamedTuple

from argosy.local.node import kernel
from argosy.local.node.kernel import BIND, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, RECURSIVE
from argosy.local.node.rootfs import PER_CONTAINER, overlay_root, rootless_root
from argosy.local.node.runspec import ContainerConfig, RunSpec

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 (of the container, as are the next two)
_PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DISKS: Final = frozenset(
    [
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "f2fs",
        "bcachefs",
        "nfs",
        "nfs4",
        "overlay",
        "squashfs",
        "erofs",
        "virtiofs",
        "9p",
        "vfat",
        "fuseblk",
    ]
)
_MASKED_FILES: Final = (
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/sched_debug",
)
_MASKED_FOLDERS: Final = ("/proc/acpi", "/proc/asound", "/proc/scsi", "/sys/firmware", "/sys/kernel/debug")
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class HostRoot(NamedTuple):
    """The host's root, which is reachable after pivot_root until it is unmounted."""

    root: str
    restrictions: int
    """Flags for every mount that shows something of the host."""

    def path(self, path: str | Path) -> str:
        return f"{self.root}{path}"

    def bind(self, source: str | Path, target: str | Path, *, read_only: bool) -> None:
        """Bind-mount a file or folder of the host at `target`."""
        original = self.path(source)
        _make_mount_point(Path(target), folder=stat.S_ISDIR(Path(original).stat().st_mode))
        kernel.mount(original, str(target), flags=BIND | RECURSIVE)
        self.restrict(str(target), self.restrictions | (READ_ONLY if read_only else 0))

    def restrict(self, target: str, flags: int) -> None:
        if flags:
            kernel.restrict_mount(os.path.realpath(target), flags, self.path("/proc"))


def enter_root(runspec: RunSpec, config: ContainerConfig, folder: Path, scratch: Path, proc: Path) -> None:
    """Build the container's root in `scratch` and make it this process's root.

    `proc` is where the /proc of the container's PID namespace is mounted; this process is outside of it.
    """
    restrictions = 0 if config["privileged"] else NO_DEV
    root = scratch / "root"
    for path in (root, scratch / "upper", scratch / "work"):
        path.mkdir(parents=True, exist_ok=True)
    if runspec["rootless"]:
        rootless_root(config["root"], root, scratch / "layers")
    else:
        overlay_root(config["root"], root, scratch, restrictions)
    host = HostRoot(f"/.argosy-{secrets.token_hex(16)}", restrictions)
    (root / host.root[1:]).mkdir(mode=0o700)
    kernel.pivot_root(str(root), str(root / host.root[1:]))
    os.chdir("/")
    _system_folders(host, config, folder, proc)
    _run_folder(host, config, scratch)
    _private_folders(host, runspec, config, scratch)
    if config["root"] == "/":
        _submounts(host, runspec)
    for shown in runspec["visible"]:
        if _is_missing(Path(shown)) or _below_any(shown, runspec["hidden"]):  # in a home, or in /tmp
            host.bind(shown, shown, read_only=True)
    for name in ("hosts", "hostname", "resolv.conf"):
        _etc_file(host, folder / "etc" / name, Path("/etc") / name)
    for entry in config["mounts"]:
        host.bind(entry["source"], entry["target"], read_only=entry["read_only"])
    if config["message_path"]:
        host.bind(scratch / "message", config["message_path"], read_only=False)
    if not config["privileged"]:
        _mask(host)
    kernel.unmount(host.root)
    Path(host.root).rmdir()
    if config["read_only_root"]:
        kernel.remount("/", READ_ONLY)


def _is_missing(path: Path) -> bool:
    """Return True if there is nothing, or only the mount point that a restored folder brought along."""
    return not path.exists() or (path.is_dir() and next(path.iterdir(), None) is None)


def _make_mount_point(path: Path, *, folder: bool) -> None:
    """Create a file or folder as mount point, unless it exists."""
    try:
        _make_entry(path, folder=folder)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        _make_extensible(next(parent for parent in path.parents if parent.is_dir()))
        _make_entry(path, folder=folder)


def _make_entry(path: Path, *, folder: bool) -> None:
    if folder:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _make_extensible(folder: Path) -> None:
    """Replace a read-only folder with a tmpfs that has the same entries, so that others can be added."""
    staging = Path("/", f".argosy-{secrets.token_hex(16)}")
    staging.mkdir(mode=0o700)
    kernel.mount("tmpfs", str(staging), "tmpfs", NO_DEV, "mode=755")
    for entry in folder.iterdir():
        copy = staging / entry.name
        if entry.is_symlink():
            copy.symlink_to(entry.readlink())
        else:
            _make_entry(copy, folder=entry.is_dir())
            kernel.mount(str(entry), str(copy), flags=BIND | RECURSIVE)
    kernel.mount(str(staging), str(folder), flags=BIND | RECURSIVE)
    kernel.unmount(str(staging))
    staging.rmdir()


def _system_folders(host: HostRoot, config: ContainerConfig, folder: Path, proc: Path) -> None:
    for name in PER_CONTAINER:
        Path("/", name).mkdir(exist_ok=True)
    kernel.mount(host.path(proc), "/proc", flags=BIND)
    read_only = 0 if config["privileged"] else READ_ONLY
    try:
        kernel.mount("sysfs", "/sys", "sysfs", NO_SUID | NO_DEV | NO_EXEC | read_only)
    except OSError:  # sysfs cannot be mounted for another network namespace
        host.bind("/sys", "/sys", read_only=bool(read_only))
    _devices(host, config)
    kernel.mount(host.path(folder / "shm"), _SHARED_MEMORY, flags=BIND)


def _run_folder(host: HostRoot, config: ContainerConfig, scratch: Path) -> None:
    """Mount an empty /run, or that of the checkpoint from which the container is restored."""
    if config["restore"]:
        kernel.mount(host.path(scratch / "run"), "/run", flags=BIND)
        host.restrict("/run", NO_SUID | NO_DEV)
        return
    kernel.mount("tmpfs", "/run", "tmpfs", NO_SUID | NO_DEV, "mode=755")
    Path("/run/lock").mkdir(mode=0o1777)


def _devices(host: HostRoot, config: ContainerConfig) -> None:
    """Bind-mount the device files that a container may use. Those that it creates itself cannot be opened."""
    kernel.mount("tmpfs", "/dev", "tmpfs", NO_SUID | host.restrictions, "mode=755,size=65536k")
    Path("/dev/pts").mkdir()
    kernel.mount("devpts", "/dev/pts", "devpts", NO_SUID | NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    Path("/dev/ptmx").symlink_to("pts/ptmx")
    Path(_SHARED_MEMORY).mkdir(mode=0o1777)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        Path("/dev", name).symlink_to(f"/proc/self/fd{target}")
    wanted = [f"/dev/{name}" for name in _DEVICES] + config["devices"]
    if config["privileged"]:
        wanted += [f"/dev/{entry.name}" for entry in Path(host.path("/dev")).iterdir() if entry.name != "shm"]
    for device in wanted:
        path, original = Path(device), Path(host.path(device))
        if path.exists() or path.is_symlink() or original.is_symlink() or not original.exists():
            continue
        _make_entry(path, folder=original.is_dir())
        kernel.mount(str(original), device, flags=BIND)


def _private_folders(host: HostRoot, runspec: RunSpec, config: ContainerConfig, scratch: Path) -> None:
    """Mount empty writable folders over shared ones (/tmp) and home folders, and hide the state folder."""
    private = Path(host.path(scratch)) / "private"
    private.mkdir(exist_ok=True)
    for number, (path, mode) in enumerate(private_folders(runspec, config)):
        folder = Path(path).resolve()  # a home may be a symbolic link
        if not folder.is_dir():
            continue
        fresh = private / str(number)
        fresh.mkdir(exist_ok=True)
        fresh.chmod(mode)
        kernel.mount(str(fresh), str(folder), flags=BIND)
        host.restrict(str(folder), host.restrictions)


def private_folders(runspec: RunSpec, config: ContainerConfig) -> list[tuple[str, int]]:
    """Return paths and modes of the folders that are private; each is kept below its number in the list."""
    folders = [(path, 0o1777) for path in _PRIVATE]
    return folders + [(path, 0o755) for path in runspec["hidden"] if config["root"] == "/"]


def _submounts(host: HostRoot, runspec: RunSpec) -> None:
    """Bind-mount other disks of the host, because an overlay does not include mounts below its root."""
    if runspec["rootless"]:
        return
    skipped = (
        [f"/{name}" for name in PER_CONTAINER] + runspec["hidden"] + ["/boot", "/snap", "/var/lib/docker"]
    )
    for target, kind in _host_mounts(host):
        if kind in _DISKS and target != "/" and not _below_any(target, skipped) and Path(target).is_dir():
            host.bind(target, target, read_only=True)


def _host_mounts(host: HostRoot) -> list[tuple[str, str]]:
    """Return mount points and types of the host, from its mountinfo."""
    host_mounts = []
    for line in Path(host.path("/proc/self/mountinfo")).read_text().splitlines():
        left, _, right = line.partition(" - ")
        target = left.split()[4].replace("\\040", " ")
        if target.startswith(host.root):
            host_mounts.append((target[len(host.root) :] or "/", right.split()[0]))
    return host_mounts


def _etc_file(host: HostRoot, source: Path, target: Path) -> None:
    """Mount a file of the pod in /etc. A symbolic link there is replaced, or followed if it is read-only."""
    try:
        if target.is_symlink():
            target.unlink()
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        target = target.resolve()
    host.bind(source, target, read_only=False)


def _mask(host: HostRoot) -> None:
    for path in _MASKED_FILES:
        if Path(path).exists():
            kernel.mount("/dev/null", path, flags=BIND)
    for path in _MASKED_FOLDERS:
        if Path(path).is_dir():
            kernel.mount("tmpfs", path, "tmpfs", READ_ONLY | NO_SUID | NO_DEV, "size=0k,mode=000")
    for path in _READ_ONLY:
        if Path(path).exists():
            kernel.mount(path, path, flags=BIND | RECURSIVE)
            host.restrict(path, READ_ONLY)


def _below_any(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
