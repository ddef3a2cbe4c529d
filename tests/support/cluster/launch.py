"""Starts a program that outlives its caller, on the host or inside a node.

Run as `python -m tests.support.cluster.launch [--node PID] --log FILE --folder FOLDER [--cgroup PATH]… --
COMMAND…`, where PID is the node's first process; prints the program's pid as the host sees it. The program
is adopted by the first process of the machine, or of the node. Standard library only.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from argosy.local.node import kernel
from tests.support.cluster.machine import NEW_CGROUP, become

_NAMESPACES: Final = {
    "cgroup": NEW_CGROUP,
    "ipc": kernel.NEW_IPC,
    "uts": kernel.NEW_UTS,
    "net": kernel.NEW_NET,
    "pid": kernel.NEW_PID,
    "mnt": kernel.NEW_MOUNT,
}


def main() -> int:
    """Start the program and print its pid; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", type=int)
    parser.add_argument("--log", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--cgroup", action="append", default=[])
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    output = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for cgroup in options.cgroup:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    if options.node is not None:
        _enter(options.node)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(options.folder)
        become(options.command, output)
    sys.stdout.write(f"{pid}\n")
    return 0


def _enter(pid: int) -> None:
    names = _NAMESPACES.items()
    for descriptor, kind in [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind) for name, kind in names]:
        kernel.setns(descriptor, kind)
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
