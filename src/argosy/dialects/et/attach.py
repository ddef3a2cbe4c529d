"""How a launcher reaches its workers, by ssh or by kubexec, and how that is checked.

All commands use nothing but a POSIX shell, because nothing else can be assumed of an image.
"""

from shlex import quote
from typing import Final

SSH, KUBEXEC = "ssh", "kubexec"
KUBEXEC_SCRIPT: Final = "/etc/mpi/kubexec.sh"
"""Horovod uses this agent instead of ssh if OMPI_MCA_plm_rsh_agent has exactly this value."""

_IDLE = "trap 'exit 0' TERM INT; sleep 365d & wait"
"""Ends at SIGTERM, which a plain `sleep` as the first process of a container ignores."""
IDLE_COMMAND: Final = ("/bin/sh", "-c", _IDLE)
SSHD_COMMAND: Final = ("/bin/sh", "-c", f"mkdir -p /run/sshd && /usr/sbin/sshd; {_IDLE}")

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
#
# Each side ends when the other does. This shell alone holds the writing end of a pipe, which is the standard
# input over there: when it ends, however it ends, the pipe is closed, and a watcher ends every process of the
# command, which it finds by a variable that they inherit.
pod=$1
shift
export KUBECONFIG=/dev/null GOMAXPROCS=1

remote='
exec 3<&0
KUBEXEC_ID=$1 /bin/sh -c "$0" < /dev/null 3<&- &
command=$!
{
    while read -r _ <&3; do :; done
    trap "" TERM
    for signal in TERM KILL; do
        for process in /proc/[0-9]*; do
            if grep -qs "KUBEXEC_ID=$1" "$process/environ"; then kill "-$signal" "${process#/proc/}"; fi
        done
        sleep 5
    done
} > /dev/null 2>&1 &
watcher=$!
wait "$command"
code=$?
kill "$watcher" 2> /dev/null
exit "$code"'

folder=$(mktemp -d) && mkfifo "$folder/pipe" || exit 255
id=$$-$(date +%s)-$pod
set -- "$remote" "$*" "$id"
/opt/kube/kubectl exec --quiet -i "$pod" --container @container@ -- /bin/sh -c "$@" < "$folder/pipe" &
kubectl=$!
exec 4> "$folder/pipe"
rm -rf "$folder"
trap 'exec 4>&-' HUP INT TERM
wait "$kubectl"
code=$?
while kill -0 "$kubectl" 2> /dev/null; do # a signal ended the wait
    wait "$kubectl"
    code=$?
done
exit "$code"
"""


def kubexec_script(container: str) -> str:
    """Return kubexec.sh for workers with this container."""
    return _KUBEXEC.replace("@container@", quote(container))


def drain_check(mode: str) -> tuple[str, ...]:
    """Return the command in the launcher that prints those of its arguments, hosts, that it still uses."""
    return ("/bin/sh", "-c", _DRAIN, mode)
