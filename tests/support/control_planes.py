"""Starts two control planes without nodes: each is an API server with its controllers and simulated pods.

The reference is kube-apiserver with kube-controller-manager; the other is the local API server with its own
controllers. The same simulator acts as the nodes of both, so that only the controllers differ.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from argosy.local.apiserver.kubeconfig import write_kubeconfig
from tests.support import commands
from tests.support.assets import Programs
from tests.support.servers import Server, free_port, start_local, start_real, start_tethered, stop_process

_NODES = 3


@contextlib.contextmanager
def real_control_plane(folder: Path, programs: Programs = Programs()) -> Iterator[Server]:
    """kube-apiserver and kube-controller-manager for the duration of a with block."""
    manager = programs.find("kube-controller-manager")
    with _stopped_at_exit() as processes:
        server = start_real(folder, free_port(), processes, tethered=True, programs=programs)
        keys = folder / "pki"
        flags = (
            f"--kubeconfig={server.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--root-ca-file={keys}/ca.crt",
            f"--service-account-private-key-file={keys}/sa.key",
            "--concurrent-gc-syncs=4",
        )
        processes.append(start_tethered((str(manager), *flags), folder, "kube-controller-manager"))
        processes.append(_simulator(server, "--schedule"))
        yield server


@contextlib.contextmanager
def local_control_plane(folder: Path) -> Iterator[Server]:
    """The local API server and its controllers for the duration of a with block."""
    with _stopped_at_exit() as processes:
        server = start_local(folder, free_port(), processes)
        kubeconfig = folder / "kubeconfigs" / "controllers"
        write_kubeconfig(kubeconfig, server.url, server.ca_file, server.token)
        module = (sys.executable, "-m", "argosy.local.controllers", "--state", str(folder))
        processes.append(start_tethered(module, folder, "controllers"))
        processes.append(_simulator(server))
        yield server


@contextlib.contextmanager
def _stopped_at_exit() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield processes
    finally:
        for process in reversed(processes):
            stop_process(process)


def _simulator(server: Server, *options: str) -> subprocess.Popen[bytes]:
    flags = ("--kubeconfig", str(server.kubeconfig), "--nodes", str(_NODES), *options)
    command = commands.module("tests.support.simulate", *flags)
    return start_tethered(command, server.folder, "simulator", stdin=subprocess.PIPE)
