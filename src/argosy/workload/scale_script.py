"""Builds the call that runs a user's script in the launcher once, with a time limit, in any image with `sh`.

The call may be repeated by an operator that was restarted meanwhile. A folder marks that the script was
started, and a file next to it holds the exit code: a later call waits for that file and returns the code.
"""

from collections.abc import Sequence
from datetime import timedelta

from argosy.plan.actions import Exec
from argosy.workload.observed import ObservedPod
from argosy.workload.operation import Operation
from argosy.workload.scale_request import Script

TIMED_OUT_EXIT_CODE = 124
"""Exit code of a script that was ended because it took too long, as of the program `timeout`."""
EXTRA_SECONDS = 15
"""Seconds more than the script has, so that the wrapper ends it and not the connection."""

WRAPPER = """marker=$0 limit=$1 script=$2 hosts=$3
shift 3
descendants() {
    for stat in /proc/[0-9]*/stat; do
        { read -r line < "$stat"; } 2> /dev/null || continue
        parent=${line##*) }
        parent=${parent#* }
        if [ "${parent%% *}" = "$1" ]; then descendants "${line%% *}"; fi
    done
    processes="$processes $1"
}
if mkdir "$marker" 2> /dev/null; then
    for assignment do export "$assignment"; done
    sh "$script" "$hosts" < /dev/null &
    child=$!
    {
        sleep "$limit"
        echo 1 > "$marker/late"
        descendants "$child"
        kill -TERM $processes
        sleep 3
        kill -KILL $processes
    } < /dev/null > /dev/null 2>&1 &
    timer=$!
    wait "$child"
    code=$?
    if [ -f "$marker/late" ]; then
        code=124
        wait "$timer"
    else
        descendants "$timer"
        kill -KILL $processes 2> /dev/null
    fi
    echo "$code" > "$marker/new" && mv "$marker/new" "$marker/code"
    exit "$code"
fi
waited=0
while [ ! -f "$marker/code" ]; do
    if [ "$waited" -gt "$((limit + 10))" ]; then exit 124; fi
    sleep 1
    waited=$((waited + 1))
done
read -r code < "$marker/code"
exit "$code"
"""
"""Uses nothing but `sh`, `sleep`, `mkdir` and `mv`. Processes are found by their parents, because a shell
without a terminal cannot make process groups."""


def script_call(
    operation: Operation,
    script: Script,
    launcher: ObservedPod,
    container: str,
    folder: str,
    hosts: Sequence[str],
) -> Exec:
    """Return the call of one try; `hosts` are written as the script gets them, `folder` is writable."""
    tries = operation.failed_tries
    command = (
        *("/bin/sh", "-c", WRAPPER, f"{folder}/.scale-{operation.id}-{tries}"),
        *(f"{script.timeout:.0f}", script.path, ",".join(hosts)),
        *(f"{name}={value}" for name, value in script.env),
    )
    return Exec(
        key=f"script/{operation.id}/{tries}",
        pod=launcher.name,
        uid=launcher.uid,
        container=container,
        command=command,
        timeout_seconds=script.timeout + EXTRA_SECONDS,
    )


def unreachable_limit(script: Script) -> timedelta:
    """Return after how long a launcher that cannot be reached counts as a failed try."""
    return timedelta(seconds=script.timeout + EXTRA_SECONDS)
