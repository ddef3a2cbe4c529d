"""Finds out what CRIU and the container runtime of the host can do, by trying it on a process that sleeps.

An agent in a container runs a script on the host, with the CRIU that the container runtime uses. An agent on
the host itself, as that of a local control plane, uses the CRIU that the nodes use.
"""

import asyncio
import re
import subprocess
from collections.abc import Sequence
from typing import Final

from argosy.checkpoint.drivers import criu

PROBE_SECONDS: Final = 120.0
CONFIG_SECONDS: Final = 30.0

_SCRIPT: Final = r"""
PATH=$PATH:/usr/sbin:/sbin
cd / || exit 1
command -v criu >/dev/null || { echo "problem=criu is not on PATH"; exit 0; }
output=$(criu check 2>&1) ||
    { echo "problem=criu check: $(echo "$output" | grep Error | head -n 1)"; exit 0; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
try() {
    name=$1; shift
    mkdir "$folder/$name" || exit 1
    setsid "$@" sleep 1000 </dev/null >/dev/null 2>&1 &
    pid=$!
    tries=0
    until [ "$(cat /proc/$pid/comm 2>/dev/null)" = sleep ]; do
        [ $((tries += 1)) -gt 100 ] && { kill -9 $pid 2>/dev/null; return; }
        sleep 0.1
    done
    set -- --images-dir "$folder/$name" --manage-cgroups=ignore
    if criu dump --tree $pid "$@" --log-file dump.log >/dev/null 2>&1 &&
        criu restore "$@" --restore-detached --pidfile restored.pid --log-file restore.log >/dev/null 2>&1
    then
        kill -9 "$(cat "$folder/$name/restored.pid")"
        echo "$name="
        return
    fi
    kill -9 $pid 2>/dev/null
    reason=$(sed -n 's/.*Error ([^)]*): *//p' "$folder/$name"/*.log |
        grep -v -e tun: -e RLIMIT_NOFILE | head -n 1)
    echo "$name=${reason:-CRIU gives no reason}"
}
try problem
try users setpriv --reuid 1000 --regid 1000 --clear-groups
"""
"""Prints `problem=` and `users=` with the reasons why processes of root and of another user cannot be
restored, empty if they can; a line is missing if that could not be tried."""

_CONFIGURATIONS: Final = {
    "containerd": (("containerd", "config", "dump"), "enable_experimental_restore_via_create"),
    "cri-o": (("crio", "status", "config"), "enable_criu_support"),
}

CRIO_LEVEL: Final = "container_level_enabled"
"""The setting of newer versions of CRI-O, which decides. There `enable_criu_support` is true by default."""


async def probe_criu(host_command: Sequence[str]) -> criu.Probe:
    """Return what CRIU can do on the host; raises OSError or TimeoutError if that cannot be found out."""
    if not host_command:
        return await asyncio.to_thread(criu.probe)
    code, output = await _run([*host_command, "sh", "-c", _SCRIPT], PROBE_SECONDS)
    results = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    if code != 0 or "problem" not in results:
        raise OSError(f"{host_command[0]}: CRIU could not be tried (exit code {code})")
    return criu.Probe("", results["problem"], results["problem"] or results.get("users", ""))


async def restores_images(runtime: str, host_command: Sequence[str]) -> bool | None:
    """Return whether a container runtime, such as `containerd://2.1.4`, restores images; None: not known.

    What its configuration does not say is not known: containerd may have been started with another file.
    CRI-O answers for itself, so that a level without restoring is a fact.
    """
    name = runtime.partition("://")[0]
    if name == "argosy":
        return True  # the local control plane
    if name not in _CONFIGURATIONS:
        return None
    command, setting = _CONFIGURATIONS[name]
    try:
        code, output = await _run([*host_command, *command], CONFIG_SECONDS)
    except (OSError, TimeoutError):
        return None
    if code != 0:
        return None
    level = _setting(output, CRIO_LEVEL) if name == "cri-o" else ""
    if level not in ("", "checkpoint_restore"):
        return False
    enabled = _setting(output, setting)
    return True if enabled == "true" or (level and not enabled) else None


def _setting(config: str, name: str) -> str:
    """Return the value of a setting in TOML, one word without its quotes; empty if it is not there."""
    match = re.search(rf"^\s*{name}\s*=\s*[\"']?(\w+)[\"']?\s*(#.*)?$", config, re.MULTILINE)
    return match[1] if match else ""


async def _run(command: Sequence[str], seconds: float) -> tuple[int, str]:
    process = await asyncio.to_thread(_start, command)
    try:
        async with asyncio.timeout(seconds):
            output, _ = await asyncio.to_thread(process.communicate)
    except TimeoutError:
        raise TimeoutError(f"{command[0]} does not end") from None
    finally:
        process.kill()  # the thread, which waits for its end, reaps it
    return process.returncode, output.decode(errors="replace")


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a command, and not by the event loop.

    uvloop leaves descriptors open in the processes that it starts, and CRIU cannot dump a process with files
    of the agent's container.
    """
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
