"""A container's view of the file system: the image's root with private writes, and what the pod may see of
the host.

The root is an overlay whose lower layer is the host's root (or an image folder), so programs are there and
writes stay inside. A user namespace may not use `/` itself as a lower layer (its submounts are locked), so
there each top-level directory gets its own overlay on a tmpfs. Everything else is mounted after the root was
pivoted, while the host is still reachable under OLD: then the kernel itself resolves symbolic links such as
/var/run. Standard library only; runs in the container's process, in its own mount namespace.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from argosy.local.node import kernel
from argosy.local.node.kernel import BIND, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, RECURSIVE, REMOUNT
from argosy.local.node.launch import ContainerPlan, Launch

OLD: Final = "/.argosy-host"
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 (of the container, as are the next two)
_PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108
_FRESH: Final = ("proc", "sys", "dev", "tmp", "run")
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


def enter_root(launch: Launch, plan: ContainerPlan, folder: Path, scratch: Path) -> None:
    """Build the container's root in `scratch` and make it this process's root."""
    root = scratch / "root"
    for path in (root, scratch / "upper", scratch / "work"):
        path.mkdir(parents=True, exist_ok=True)
    if launch["rootless"]:
        _rootless_root(plan["root"], root, scratch / "layers")
    else:
        _overlay_root(plan["root"], root, scratch)
    (root / OLD[1:]).mkdir(exist_ok=True)
    kernel.pivot_root(str(root), str(root / OLD[1:]))
    os.chdir("/")
    _system_folders(plan, folder)
    _private_folders(launch, plan, scratch)
    if plan["root"] == "/":
        _submounts(launch)
    for shown in launch["visible"]:
        if not Path(shown).exists() or _below_any(shown, launch["hidden"]):  # in a home, or in /tmp
            bind(shown, shown, read_only=True)
    for name in ("hosts", "hostname", "resolv.conf"):
        _etc_file(folder / "etc" / name, Path("/etc") / name)
    for entry in plan["mounts"]:
        bind(entry["source"], entry["target"], read_only=entry["read_only"])
    if plan["message_path"]:
        bind(str(scratch / "message"), plan["message_path"], read_only=False)
    if not plan["privileged"]:
        _mask()
    kernel.unmount(OLD)
    Path(OLD).rmdir()
    if plan["read_only_root"]:
        _remount_read_only("/")


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Show a file or folder of the host, as it was before pivoting, at `target`."""
    old = f"{OLD}{Path(source)}"
    place = Path(target)
    if stat.S_ISDIR(Path(old).stat().st_mode):
        place.mkdir(parents=True, exist_ok=True)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    kernel.mount(old, target, flags=BIND | RECURSIVE)
    if read_only:
        _remount_read_only(target)


def _overlay_root(image: str, root: Path, scratch: Path) -> None:
    """One overlay over the whole image; where the disk cannot hold an upper layer, a tmpfs does."""
    upper, work = scratch / "upper", scratch / "work"
    upper.chmod(0o755)
    try:
        kernel.mount("overlay", str(root), "overlay", 0, f"lowerdir={image},upperdir={upper},workdir={work}")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
            raise
        layers = scratch / "layers"
        layers.mkdir(exist_ok=True)
        kernel.mount("tmpfs", str(layers), "tmpfs", 0, "mode=755")
        for name in ("upper", "work"):
            (layers / name).mkdir(mode=0o755)
        kernel.mount(
            "overlay",
            str(root),
            "overlay",
            0,
            f"lowerdir={image},upperdir={layers}/upper,workdir={layers}/work",
        )


def _rootless_root(image: str, root: Path, layers: Path) -> None:
    """A tmpfs with an overlay for each top-level directory; links are copied, files shown as they are."""
    layers.mkdir(exist_ok=True)
    for place in (root, layers):
        kernel.mount("tmpfs", str(place), "tmpfs", 0, "mode=755")
    for entry in sorted(Path(image).iterdir()):
        place = root / entry.name
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif entry.is_dir():
            place.mkdir(mode=0o755)
            if entry.name not in _FRESH:
                _overlay_folder(entry, place, layers / entry.name)
        elif entry.is_file():
            place.touch()
            kernel.mount(str(entry), str(place), flags=BIND)
    for name in (*_FRESH, "etc"):
        (root / name).mkdir(mode=0o755, exist_ok=True)


def _overlay_folder(lower: Path, place: Path, layer: Path) -> None:
    (layer / "upper").mkdir(parents=True, mode=0o755)
    (layer / "work").mkdir()
    options = f"userxattr,lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work"
    try:
        kernel.mount("overlay", str(place), "overlay", 0, options)
    except OSError:  # locked submounts below, or a folder that this user may not read: show it as it is
        try:
            kernel.mount(str(lower), str(place), flags=BIND | RECURSIVE)
        except OSError:
            return


def _system_folders(plan: ContainerPlan, folder: Path) -> None:
    for name in _FRESH:
        Path("/", name).mkdir(exist_ok=True)
    kernel.mount("proc", "/proc", "proc", NO_SUID | NO_DEV | NO_EXEC)
    try:
        kernel.mount(
            "sysfs", "/sys", "sysfs", NO_SUID | NO_DEV | NO_EXEC | (0 if plan["privileged"] else READ_ONLY)
        )
    except OSError:  # a host network namespace that is not ours to describe
        kernel.mount(f"{OLD}/sys", "/sys", flags=BIND | RECURSIVE)
    kernel.mount("tmpfs", "/run", "tmpfs", NO_SUID | NO_DEV, "mode=755")
    Path("/run/lock").mkdir(mode=0o1777)
    _devices(plan)
    kernel.mount(f"{OLD}{folder / 'shm'}", _SHARED_MEMORY, flags=BIND)


def _devices(plan: ContainerPlan) -> None:
    kernel.mount("tmpfs", "/dev", "tmpfs", NO_SUID, "mode=755,size=65536k")
    Path("/dev/pts").mkdir()
    kernel.mount("devpts", "/dev/pts", "devpts", NO_SUID | NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    Path("/dev/ptmx").symlink_to("pts/ptmx")
    Path(_SHARED_MEMORY).mkdir(mode=0o1777)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        Path("/dev", name).symlink_to(f"/proc/self/fd{target}")
    wanted = [f"/dev/{name}" for name in _DEVICES] + plan["devices"]
    if plan["privileged"]:
        wanted += [f"/dev/{entry.name}" for entry in Path(OLD, "dev").iterdir() if entry.name != "shm"]
    for device in wanted:
        place, original = Path(device), Path(OLD + device)
        if place.exists() or place.is_symlink() or original.is_symlink() or not original.exists():
            continue
        if original.is_dir():
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        kernel.mount(str(original), device, flags=BIND)


def _private_folders(launch: Launch, plan: ContainerPlan, scratch: Path) -> None:
    """Fresh writable folders in place of shared ones (/tmp) and of people's homes; nothing in place of our
    state.
    """
    private = Path(OLD + str(scratch)) / "private"
    private.mkdir(exist_ok=True)
    folders = [(path, 0o1777) for path in _PRIVATE]
    folders += [(path, 0o755) for path in launch["hidden"] if plan["root"] == "/"]
    for number, (path, mode) in enumerate(folders):
        place = Path(path).resolve()  # a home may be a link to where it really is
        if not place.is_dir():
            continue
        fresh = private / str(number)
        fresh.mkdir(exist_ok=True)
        fresh.chmod(mode)
        kernel.mount(str(fresh), str(place), flags=BIND)


def _submounts(launch: Launch) -> None:
    """Show other disks of the host where they are: an overlay does not look below mount points."""
    if launch["rootless"]:
        return
    skipped = [f"/{name}" for name in _FRESH] + launch["hidden"] + ["/boot", "/snap", "/var/lib/docker"]
    for target, kind in _host_mounts():
        if kind in _DISKS and target != "/" and not _below_any(target, skipped) and Path(target).is_dir():
            bind(target, target, read_only=True)


def _host_mounts() -> list[tuple[str, str]]:
    """Mount point and type, in order, from the host's own list as seen before pivoting."""
    found = []
    for line in Path(f"{OLD}/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        target = left.split()[4].replace("\\040", " ")
        if target.startswith(OLD):
            found.append((target[len(OLD) :] or "/", right.split()[0]))
    return found


def _etc_file(source: Path, target: Path) -> None:
    if target.is_symlink():
        target.unlink()
    bind(str(source), str(target), read_only=False)


def _mask() -> None:
    for path in _MASKED_FILES:
        if Path(path).exists():
            kernel.mount("/dev/null", path, flags=BIND)
    for path in _MASKED_FOLDERS:
        if Path(path).is_dir():
            kernel.mount("tmpfs", path, "tmpfs", READ_ONLY | NO_SUID | NO_DEV, "size=0k,mode=000")
    for path in _READ_ONLY:
        if Path(path).exists():
            kernel.mount(path, path, flags=BIND | RECURSIVE)
            _remount_read_only(path)


def _remount_read_only(target: str) -> None:
    """Keep the flags it has: a user namespace may add restrictions to a mount but not take any away."""
    flags = os.statvfs(target).f_flag & (NO_SUID | NO_DEV | NO_EXEC)
    kernel.mount("none", target, flags=BIND | REMOUNT | READ_ONLY | flags)


def _below_any(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
