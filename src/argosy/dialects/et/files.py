"""The host lists of a TrainingJob in the forms that drivers read, and the script that prints one.

Horovod and AIACC run `discover_hosts.sh` every second, MPI reads `hostfile`, DeepSpeed its own form.
"""

from collections.abc import Sequence
from shlex import quote

HOSTFILE, DISCOVER_HOSTS = "hostfile", "discover_hosts.sh"
DEEPSPEED_HOSTFILE, KUBEXEC = "deepspeed-hostfile", "kubexec.sh"
"""Keys of the ConfigMap, and names of the files in CONFIG_FOLDER."""

HOSTS_FOLDER = "/etc/edl"
"""Folder in the launcher with the current copies of HOSTFILE and DISCOVER_HOSTS."""
DEEPSPEED_FOLDER = "/job"
"""Folder in the launcher with the current copy of DEEPSPEED_HOSTFILE, there called HOSTFILE."""
CONFIG_FOLDER = "/etc/mpi"
"""Folder in the launcher in which the ConfigMap is mounted."""
KUBECTL_FOLDER = "/opt/kube"
"""Folder in the launcher with kubectl and the program of remote exec."""


def hostfile(hosts: Sequence[str], slots: int) -> str:
    """Return one line `HOST:SLOTS` for each worker; empty if there is none."""
    return "".join(f"{host}:{slots}\n" for host in hosts)


def deepspeed_hostfile(hosts: Sequence[str], slots: int) -> str:
    """Return one line `HOST slots=SLOTS` for each worker; empty if there is none."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def script_hosts(hosts: Sequence[str], slots: int) -> str:
    """Return workers as the argument of a scaler's script: `HOST:SLOTS,HOST:SLOTS`."""
    return ",".join(f"{host}:{slots}" for host in hosts)


def discover_hosts(file: str = f"{HOSTS_FOLDER}/{HOSTFILE}") -> str:
    """Return a script that prints the host list.

    It uses nothing but a POSIX shell, since an image may have no `cat`. It always succeeds, because Horovod
    gives up if its first run fails.
    """
    return f"""#!/bin/sh
if [ -r {quote(file)} ]; then
    while IFS= read -r host || [ -n "$host" ]; do
        printf '%s\\n' "$host"
    done < {quote(file)}
fi
exit 0
"""
