"""`scripts/kubernetes`: build a real Kubernetes API server once, start it in seconds, stop it.

What runs is remembered in one folder as pid and start time, so `down` never signals a process that merely got
the same pid, and `up` on a folder whose server died starts a new one. Nothing needs root.
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
from argosy.testing import assets
from argosy.testing.servers import Server, ServerFailed, free_port, is_ready, start_real

_GRACE = 10.0


class Running(Struct, frozen=True):
    """The contents of running.json in the server's folder."""

    server: Server
    processes: tuple[Process, ...]

    @property
    def alive(self) -> bool:
        return all(process.alive for process in self.processes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "build":
                assets.build_apiserver(_say)
                return 0
            case "up":
                return _up(options.dir, options.port)
            case "down":
                return _down(options.dir)
            case "env":
                return _env(options.dir)
            case _:
                return _status(options.dir)
    except (assets.MissingAsset, ServerFailed, OSError) as error:
        _say(f"scripts/kubernetes: {error}")
        return 1


def read(folder: Path) -> Running | None:
    """What was started in a folder, if anything was; it may have ended since."""
    try:
        content = (folder / "running.json").read_bytes()
        return msgspec.json.decode(content, type=Running, dec_hook=lambda kind, value: kind(value))
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/kubernetes", description="A real Kubernetes API server.")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make the programs, once (several minutes, needs Go)")
    build.add_argument("what", choices=["apiserver"])
    helps = {
        "up": "start, and print the kubeconfig's path",
        "down": "stop, and remove everything",
        "status": "say what runs; exit code 3 when nothing does",
        "env": "print the shell line that points kubectl at it",
    }
    default = Path(os.environ.get("TMPDIR", "/tmp")) / f"argosy-kubernetes-{os.getuid()}"  # noqa: S108 - 0700 and ours
    for name, purpose in helps.items():
        command = commands.add_parser(name, help=purpose)
        command.add_argument("--dir", type=Path, default=default, help=f"its folder (default {default})")
        if name == "up":
            command.add_argument(
                "--apiserver-only",
                action="store_true",
                required=True,
                help="etcd and kube-apiserver, no nodes",
            )
            command.add_argument(
                "--port", type=int, default=0, help="TCP port on loopback (default: a free one)"
            )
    return parser


def _up(folder: Path, port: int) -> int:
    running = read(folder)
    if running is not None and running.alive and is_ready(running.server):
        _print(str(running.server.kubeconfig))
        return 0
    _clear(folder)
    folder.mkdir(parents=True, mode=0o700)
    started: list[subprocess.Popen[bytes]] = []
    try:
        server = start_real(folder.absolute(), port or free_port(), started, tethered=False)
    except BaseException:
        for process in reversed(started):
            process.kill()
            process.wait()
        raise
    state = Running(server, tuple(Process.of(process.pid) for process in started))
    (folder / "running.json").write_bytes(msgspec.json.encode(state, enc_hook=str))
    for process in started:
        process.returncode = 0  # not ours to wait for: it outlives this command
    _print(str(server.kubeconfig))
    return 0


def _down(folder: Path) -> int:
    _clear(folder)
    return 0


def _status(folder: Path) -> int:
    running = read(folder)
    if running is None:
        _print("nothing runs")
        return 3
    ready = running.alive and is_ready(running.server)
    _print(
        f"{running.server.url} {'ready' if ready else 'not ready'}, kubeconfig {running.server.kubeconfig}"
    )
    return 0 if ready else 3


def _env(folder: Path) -> int:
    running = read(folder)
    if running is None or not running.alive:
        _say("scripts/kubernetes: nothing runs; scripts/kubernetes up --apiserver-only starts it")
        return 3
    _print(f"export KUBECONFIG={running.server.kubeconfig}")
    return 0


def _clear(folder: Path) -> None:
    """Stop what was started in a folder and remove the folder, if it is one of ours."""
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
