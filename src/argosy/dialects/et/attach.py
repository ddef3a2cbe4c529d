"""How a launcher reaches its workers, by ssh or by kubexec, and how that is checked.

All commands use nothing but a POSIX shell, because nothing else can be assumed of an image.
"""

from shlex import quote
from typing import Final

from argosy.dialects.et.files import KUBECTL_FOLDER

SSH, KUBEXEC = "ssh", "kubexec"
KUBEXEC_SCRIPT: Final = "/etc/mpi/kubexec.sh"
"""Horovod uses this agent instead of ssh if OMPI_MCA_plm_rsh_agent has exactly this value."""

_IDLE = "trap 'exit 0' TERM INT; sleep 365d & wait"
"""Ends at SIGTERM, which a plain `sleep` as the first process of a container ignores."""
IDLE_COMMAND: Final = ("/bin/sh", "-c", _IDLE)
_HOST_KEYS = "for key in /etc/ssh/ssh_host_*_key; do [ -e $key ] || ssh-keygen -A; done"
"""Makes host keys in images that come without: sshd does not start then."""
SSHD_COMMAND: Final = ("/bin/sh", "-c", f"mkdir -p /run/sshd; {_HOST_KEYS}; /usr/sbin/sshd; {_IDLE}")

_SSHD_LISTENS = """
for table in /proc/net/tcp /proc/net/tcp6; do
    { while read -r _ address _ state _; do
        case $address in *:0016) [ "$state" = 0A ] && exit 0 ;; esac
    done; } < "$table" 2> /dev/null
done
exit 1
"""
"""Succeeds if something listens on port 22 (0016); 0A is the state LISTEN."""

ATTACH_CHECKS: Final = {SSH: ("/bin/sh", "-c", _SSHD_LISTENS), KUBEXEC: ("/bin/sh", "-c", "exit 0")}
"""Commands in a worker that succeed if the launcher can start processes there."""

_DRAIN = """
mode=$0
command -v tr > /dev/null || exit 3
for file in /proc/[0-9]*/cmdline; do
    process=${file%/cmdline}
    [ "$process" != "/proc/$$" ] && [ "$process/root" -ef /proc/self/root ] || continue
    words=$(tr '\\0' '\\n' < "$file" 2> /dev/null) || continue
    previous= position=0 program=
    while IFS= read -r word; do
        [ "$position" = 0 ] && program=${word##*/}
        for host do
            [ "$word" = "$host" ] || continue
            if [ "$mode" = ssh ] && [ "$program" = ssh ]; then echo "$host"; fi
            if [ "$mode" = kubexec ] && [ "$previous" = /etc/mpi/kubexec.sh ]; then echo "$host"; fi
        done
        previous=$word position=$((position + 1))
    done << words
$words
words
done
exit 0
"""
"""Prints the hosts for which the launcher has an attach process: an `ssh` with the host as an argument of its
own, or kubexec.sh with the host as its first argument. Processes with another root are those of other pods,
which a pod with hostPID sees."""


_KUBEXEC = """#!/bin/sh
# kubexec.sh POD COMMAND...: runs a command in a worker, as `ssh POD COMMAND...` would.
# It is sourced, not executed: the process is found by the name of this file when a worker is drained.
ARGOSY_KUBECTL=@folder@/kubectl ARGOSY_EXEC_CONTAINER=@container@
. @folder@/remote-exec
"""


def kubexec_script(container: str) -> str:
    """Return kubexec.sh for workers with this container: remote exec under the name that Horovod knows."""
    return _KUBEXEC.replace("@folder@", KUBECTL_FOLDER).replace("@container@", quote(container))


def drain_check(mode: str) -> tuple[str, ...]:
    """Return the command in the launcher that prints those of its arguments, hosts, that it still uses."""
    return ("/bin/sh", "-c", _DRAIN, mode)
