"""`scripts/kubernetes`: builds, starts and stops a real Kubernetes on this machine.

It is a cluster of one or two nodes, which needs root, or only etcd and kube-apiserver, which does not. A
folder records the pid and start time of each process, so `down` never signals an unrelated process with a
reused pid, and `up` in a folder restarts what has ended. With ARGOSY_TEST_KUBECONFIG all commands refer to
that cluster, and nothing is built, started or stopped.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from argosy.local.processes import Process
from tests.support import assets, builds
from tests.support.assets import Programs
from tests.support.cluster import lifecycle, rootfs, store
from tests.support.cluster import state as cluster_state
from tests.support.cluster.components import Settings
from tests.support.cluster.lifecycle import ClusterFailed
from tests.support.cluster.store import StoreFailed
from tests.support.local_control_plane import KUBECTL
from tests.support.servers import Server, ServerFailed, free_port, is_ready, start_real

_GRACE = 10.0
_NOT_RUNNING = 3


class Running(Struct, frozen=True):
    """The content of running.json, for an API server without nodes."""

    server: Server
    processes: tuple[Process, ...]

    @property
    def alive(self) -> bool:
        return all(process.alive for process in self.processes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if kubeconfig := os.environ.get("ARGOSY_TEST_KUBECONFIG"):
            return _use_given_cluster(options.command, Path(kubeconfig))
        match options.command:
            case "build":
                return _build(Programs(options.version), options.what)
            case "up":
                return _up_alone(options) if options.apiserver_only else _up(options)
            case "down":
                return _down(options.dir)
            case "env":
                return _env(options.dir)
            case _:
                return _status(options.dir)
    except (assets.MissingAsset, ServerFailed, ClusterFailed, StoreFailed, OSError) as error:
        _say(f"scripts/kubernetes: {error}")
        return 1


def read(folder: Path) -> Running | None:
    """The API server without nodes that was started in a folder, if any; it may have ended."""
    try:
        content = (folder / "running.json").read_bytes()
        return msgspec.json.decode(content, type=Running, dec_hook=lambda kind, value: kind(value))
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/kubernetes", description="A real Kubernetes on this machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the programs, once (several minutes, needs Go)")
    build.add_argument("what", choices=["cluster", "apiserver", "s3"], nargs="?", default="cluster")
    helps = {
        "up": "start, or restart what has ended, and print the path of the kubeconfig",
        "down": "stop, and remove everything",
        "status": f"show the processes; exit code {_NOT_RUNNING} unless all of them run",
        "env": "print the shell command that sets KUBECONFIG",
    }
    default = Path(os.environ.get("TMPDIR", "/tmp")) / f"argosy-kubernetes-{os.getuid()}"
    for name, purpose in helps.items():
        command = commands.add_parser(name, help=purpose)
        command.add_argument(
            "--dir", type=_absolute, default=default, help=f"folder of the cluster (default {default})"
        )
        if name == "up":
            _add_up_options(command)
    for command in (build, commands.choices["up"]):
        command.add_argument(
            "--version",
            choices=assets.minors(),
            default=assets.DEFAULT,
            help="version of Kubernetes (default: the newest)",
        )
    return parser


def _add_up_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="how many nodes (default 1)")
    levels = ("Metadata", "Request", "RequestResponse")
    command.add_argument("--audit", choices=levels, default="", help="write logs/audit.log, of this level")
    command.add_argument(
        "--node-grace", type=int, default=0, help="seconds without a heartbeat after which a node is NotReady"
    )
    command.add_argument("--apiserver-only", action="store_true", help="etcd and kube-apiserver, no nodes")
    command.add_argument(
        "--port",
        type=int,
        default=0,
        help="with --apiserver-only: TCP port on loopback (default: a free one)",
    )


def _absolute(path: str) -> Path:
    return Path(path).absolute()


def _use_given_cluster(command: str, kubeconfig: Path) -> int:
    """Commands for a cluster given by ARGOSY_TEST_KUBECONFIG: only `env`, `up` and `status` do something."""
    if command == "env":
        _print(f"export KUBECONFIG={kubeconfig}")
        return 0
    if command in ("build", "down"):
        _say(f"ARGOSY_TEST_KUBECONFIG is set: {kubeconfig} is used, nothing to do")
        return 0
    ready = [
        str(KUBECTL),
        "--kubeconfig",
        str(kubeconfig),
        "--request-timeout=10s",
        "get",
        "--raw",
        "/readyz",
    ]
    answer = subprocess.run(ready, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        _say(f"scripts/kubernetes: the cluster of {kubeconfig} is not ready: {answer.stderr.strip()}")
        return 1
    _print(str(kubeconfig) if command == "up" else f"the cluster of {kubeconfig} is ready")
    return 0


def _build(programs: Programs, what: str) -> int:
    if what == "s3":
        builds.build_s3_server(programs, _say)
        return 0
    reference_only = what == "apiserver"
    builds.build(programs, _say, reference_only=reference_only)
    if not reference_only and os.geteuid() == 0:  # otherwise the first `up` does it
        _say(f"images: {store.prepare(programs, rootfs.lasting_archives(programs))}")
    return 0


def _up(options: argparse.Namespace) -> int:
    if read(options.dir) is not None:
        raise ClusterFailed(
            f"an API server without nodes is in {options.dir}: down first, or give another --dir"
        )
    settings = Settings(options.version, options.nodes, options.audit, options.node_grace)
    server = lifecycle.up(options.dir, settings)
    _print(str(server.kubeconfig))
    return 0


def _up_alone(options: argparse.Namespace) -> int:
    folder: Path = options.dir
    if cluster_state.read(folder) is not None:
        raise ClusterFailed(f"a cluster is in {folder}: down first, or give another --dir")
    running = read(folder)
    if running is not None and running.alive and is_ready(running.server):
        _print(str(running.server.kubeconfig))
        return 0
    _clear(folder)
    folder.mkdir(parents=True, mode=0o700)
    started: list[subprocess.Popen[bytes]] = []
    try:
        port = options.port or free_port()
        server = start_real(folder, port, started, tethered=False, programs=Programs(options.version))
    except BaseException:
        for process in reversed(started):
            process.kill()
            process.wait()
        raise
    state = Running(server, tuple(Process.of(process.pid) for process in started))
    (folder / "running.json").write_bytes(msgspec.json.encode(state, enc_hook=str))
    for process in started:
        process.returncode = 0  # it outlives this command: Popen must not wait for it
    _print(str(server.kubeconfig))
    return 0


def _down(folder: Path) -> int:
    if read(folder) is not None:
        _clear(folder)
    else:
        lifecycle.down(folder)
    return 0


def _status(folder: Path) -> int:
    if (cluster := cluster_state.read(folder)) is not None:
        return _cluster_status(cluster)
    running = read(folder)
    if running is None:
        _print("nothing runs")
        return _NOT_RUNNING
    ready = running.alive and is_ready(running.server)
    _print(
        f"{running.server.url} {'ready' if ready else 'not ready'}, kubeconfig {running.server.kubeconfig}"
    )
    return 0 if ready else _NOT_RUNNING


def _cluster_status(cluster: cluster_state.State) -> int:
    version = Programs(cluster.settings.version).version
    ready = not cluster.dead and is_ready(cluster.server)
    _print(f"Kubernetes {version} at {cluster.server.url}, kubeconfig {cluster.server.kubeconfig}")
    for name, process in cluster.processes.items():
        state = f"pid {process.pid}" if process.alive else "ended; scripts/kubernetes up restarts it"
        _print(f"  {name:28} {state}")
    return 0 if ready else _NOT_RUNNING


def _env(folder: Path) -> int:
    cluster, running = cluster_state.read(folder), read(folder)
    if cluster is not None and "kube-apiserver" not in cluster.dead:
        _print(f"export KUBECONFIG={cluster.server.kubeconfig}")
    elif running is not None and running.alive:
        _print(f"export KUBECONFIG={running.server.kubeconfig}")
    else:
        _say("scripts/kubernetes: nothing runs; scripts/kubernetes up starts it")
        return _NOT_RUNNING
    return 0


def _clear(folder: Path) -> None:
    """Stop an API server without nodes and remove its folder, if it is one of ours."""
    running = read(folder)
    if running is not None:
        for process in reversed(running.processes):
            process.signal(signal.SIGTERM)
            if not process.wait_gone(_GRACE):
                process.signal(signal.SIGKILL)
                process.wait_gone(_GRACE)
    elif folder.exists() and any(folder.iterdir()) and not (folder / "tokens.csv").exists():
        raise OSError(f"{folder} holds other things; give another --dir")
    shutil.rmtree(folder, ignore_errors=True)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
