"""Linux capabilities by name, and the set that containers get by default.

The default set is that of container runtimes without MKNOD (without a device cgroup it would give access to
the devices of the host) and without NET_RAW (pods share one bridge).
"""

from collections.abc import Iterable
from typing import Final

_NAMES: Final = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]
NUMBERS: Final = {name: number for number, name in enumerate(_NAMES)}
DEFAULT: Final = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
]


def effective(add: Iterable[str], drop: Iterable[str]) -> list[str]:
    """Return the capabilities of a container, in the order of container runtimes.

    First `ALL` of `add`, then `ALL` of `drop`, then the names of `add`, then the names of `drop`.
    """
    added, dropped = {_plain(name) for name in add}, {_plain(name) for name in drop}
    base = set(NUMBERS) if "ALL" in added else set(DEFAULT)
    if "ALL" in dropped:
        base = set()
    return sorted((base | (added & set(NUMBERS))) - dropped)


def numbers(names: Iterable[str]) -> frozenset[int]:
    return frozenset(NUMBERS[name] for name in names if name in NUMBERS)


def _plain(name: str) -> str:
    return name.upper().removeprefix("CAP_")
