"""The process that holds a cluster's network namespace and, rootless, its user namespace.

The agent, the zygote and the pods run in these namespaces; a process that only holds them lets the agent
restart. Each cluster has its own network, also as root: clusters on one machine may use equal addresses, and
the end of this process removes every bridge and interface. Standard library only.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from argosy.local.node import kernel
from argosy.local.node.network import bring_up_loopback
from argosy.local.node.pod_state import replace_file
from argosy.local.procfs import is_alive, process_id

HOLDER_FILE: Final = "holder.json"


class NamespacesForbiddenError(Exception):
    """This system does not allow creating namespaces; the message names the setting to change."""


class PendingHolder:
    """A running or starting holder: it starts while the agent is imported, which takes as long."""

    def __init__(self, folder: Path, *, rootless: bool) -> None:
        self._found = find(folder)
        self._process = _start(folder, rootless=rootless) if self._found is None else None

    def wait(self) -> int:
        """Wait until its namespaces exist."""
        if self._process is None:
            assert self._found is not None
            return self._found
        with self._process as process:
            answer = process.stdout.readline().decode().strip() if process.stdout else ""
            if process.stdout:
                process.stdout.close()
            if answer != "ready":
                raise NamespacesForbiddenError(
                    answer or "the process that holds the namespaces did not start"
                )
            process.returncode = 0  # it keeps running: avoids a warning about an unreaped child
        return process.pid


def enter(pid: int, *, rootless: bool) -> None:
    """Put the calling, single-threaded process into the holder's namespaces."""
    for name, kind in (("user", kernel.NEW_USER), ("net", kernel.NEW_NET)):
        if name == "user" and not rootless:
            continue
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        kernel.setns(descriptor, kind)
        os.close(descriptor)


def find(folder: Path) -> int | None:
    """Return the pid of the holder if it is alive."""
    try:
        record = json.loads((folder / HOLDER_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    pid: int = record["pid"]
    return pid if is_alive(pid, record["start_time"]) else None


def stop(folder: Path) -> None:
    pid = find(folder)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    (folder / HOLDER_FILE).unlink(missing_ok=True)


def explain_forbidden(error: OSError, settings: Path = Path("/proc/sys")) -> str:
    """Name the setting that forbids unprivileged namespaces."""

    def value(name: str) -> str:
        try:
            return (settings / name).read_text().strip()
        except OSError:
            return ""

    if value("kernel/unprivileged_userns_clone") == "0":
        reason = (
            "kernel.unprivileged_userns_clone is 0; as root: sysctl -w kernel.unprivileged_userns_clone=1"
        )
    elif value("user/max_user_namespaces") == "0":
        reason = "user.max_user_namespaces is 0; as root: sysctl -w user.max_user_namespaces=15000"
    elif value("kernel/apparmor_restrict_unprivileged_userns") == "1":
        reason = (
            "AppArmor restricts them (kernel.apparmor_restrict_unprivileged_userns is 1); "
            f"allow them to this Python alone, as root:\n{apparmor_commands(Path(sys.executable))}\n"
        )
    else:
        reason = "the container or sandbox around it probably forbids them"
    return (
        f"this system does not allow namespaces for this user ({error}): {reason}, or run `argosy up` as root"
    )


def apparmor_commands(interpreter: Path) -> str:
    """Return commands that allow one program to create user namespaces, and restrict nothing else.

    Profiles apply to a program's real path; that in a virtual environment is a symbolic link.
    """
    return f"""\
cat > /etc/apparmor.d/argosy <<'END'
abi <abi/4.0>,
include <tunables/global>
profile argosy "{interpreter.resolve()}" flags=(unconfined) {{
  userns,
}}
END
apparmor_parser -r /etc/apparmor.d/argosy"""


def _start(folder: Path, *, rootless: bool) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "argosy.local.node.namespace_holder",
        str(folder),
        "rootless" if rootless else "root",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def main(folder: Path, *, rootless: bool) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if rootless:
            uid, gid = os.getuid(), os.getgid()
            kernel.unshare(kernel.NEW_USER | kernel.NEW_NET)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        else:
            kernel.unshare(kernel.NEW_NET)
        bring_up_loopback()
    except OSError as error:
        os.write(1, explain_forbidden(error).encode() + b"\n")
        return
    replace_file(folder / HOLDER_FILE, json.dumps(process_id(os.getpid())).encode())
    os.write(1, b"ready\n")
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), rootless=sys.argv[2] == "rootless")
