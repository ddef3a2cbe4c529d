"""System calls that Python 3.11 lacks: namespaces, mounts, capabilities.

Every function succeeds or raises OSError with the name of the call and its main argument, so that an error
while a pod starts can be shown to users. Standard library only: the zygote and the shims import this.
"""

import ctypes
import errno
import os
import struct
from pathlib import Path
from typing import Final

NEW_MOUNT: Final = 0x00020000
NEW_UTS: Final = 0x04000000
NEW_IPC: Final = 0x08000000
NEW_USER: Final = 0x10000000
NEW_PID: Final = 0x20000000
NEW_NET: Final = 0x40000000

READ_ONLY: Final = 1
NO_SUID: Final = 2
NO_DEV: Final = 4
NO_EXEC: Final = 8
REMOUNT: Final = 32
BIND: Final = 4096
RECURSIVE: Final = 16384
PRIVATE: Final = 1 << 18
_DETACH: Final = 2
_RESTRICTIONS: Final = READ_ONLY | NO_SUID | NO_DEV | NO_EXEC

_SET_DUMPABLE: Final = 4
_SET_NAME: Final = 15
_CAPBSET_DROP: Final = 24
_NO_NEW_PRIVS: Final = 38
_CHILD_SUBREAPER: Final = 36
_CAP_AMBIENT: Final = 47
_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_SETATTR: Final = 442  # the same on all architectures, as every call since Linux 5.1
_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int = 0) -> None:
    _check(_libc.setns(descriptor, kind), f"setns({kind:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        flags,
        os.fsencode(data) or None,
    )
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def exchange_files(first: str, second: str) -> None:
    """Swap two files. Unlike with a replacing rename, ext4 does not flush the new one at once."""
    result = _libc.syscall(
        _RENAMEAT2[os.uname().machine], _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), 2
    )
    _check(result, f"exchange {first} and {second}")


def unmount(target: str) -> None:
    """Unmount lazily: removed from the tree at once, released with its last user."""
    _check(_libc.umount2(os.fsencode(target), _DETACH), f"umount {target}")


def restrict_mount(target: str, flags: int, proc: str = "/proc") -> None:
    """Add READ_ONLY, NO_SUID, NO_DEV or NO_EXEC to a mount and every mount below it; other flags stay.

    Before Linux 5.12 this takes one remount for each, listed in `proc`, which must be this process's.
    """
    try:
        set_mount_attributes(target, flags)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        for point in mount_points(proc):
            if point == target or point.startswith(f"{target.rstrip('/')}/"):
                remount(point, flags)


def set_mount_attributes(target: str, flags: int) -> None:
    """mount_setattr(2): the attributes have the numbers of the mount flags."""
    attributes = struct.pack("4Q", flags, 0, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE,
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    _check(result, f"mount_setattr {target}")


def remount(target: str, flags: int) -> None:
    """Add flags to one mount. Its present ones are repeated, because a user namespace may not remove any."""
    present = os.statvfs(target).f_flag & _RESTRICTIONS
    mount("none", target, flags=BIND | REMOUNT | present | flags)


def mount_points(proc: str = "/proc") -> list[str]:
    """Return the mount points of this process's namespace, in the order of mounting."""
    lines = Path(proc, "self", "mountinfo").read_text().splitlines()
    return [_unescape(line.split()[4]) for line in lines]


def pivot_root(new: str, old: str) -> None:
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: no call number known for {os.uname().machine}")
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), f"pivot_root {new}")


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's."""
    _prctl(_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    _prctl(_NO_NEW_PRIVS, 1)


def set_dumpable(dumpable: bool) -> None:
    """Set whether other processes of the user may read this process's memory and environment in /proc."""
    _prctl(_SET_DUMPABLE, int(dumpable))


def set_name(name: str) -> None:
    """Set the name that `ps -o comm` shows; at most 15 bytes are used."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(_SET_NAME, ctypes.addressof(buffer))


def last_capability() -> int:
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())


def drop_from_bounding_set(capabilities: range, keep: frozenset[int]) -> None:
    for number in capabilities:
        if number not in keep:
            try:
                _prctl(_CAPBSET_DROP, number)
            except OSError:  # not in the bounding set of this machine or namespace
                continue


def set_capabilities(mask: int) -> None:
    """Set the effective and permitted capabilities to `mask`, and clear inheritable and ambient ones."""
    _libc.prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = struct.pack("6I", low, low, 0, high, high, 0)
    _check(_libc.capset(header, data), "capset")


def permitted_capabilities() -> int:
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    words = struct.unpack("6I", data.raw)
    return int(words[1]) | int(words[4]) << 32


def _unescape(text: str) -> str:
    """Undo the octal escapes of /proc/self/mountinfo: space, tab, newline and backslash."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text


def _prctl(option: int, argument: int) -> None:
    _check(_libc.prctl(option, argument, 0, 0, 0), f"prctl({option}, {argument})")


def _check(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
