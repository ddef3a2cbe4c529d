"""Starts the processes of a local control plane, restarts them, and stops them in order.

Uses the standard library and msgspec only, so that it starts quickly. It keeps no state of its own: if it is
killed its components keep running, and the next `argosy up` replaces them while pods continue.
"""

import argparse
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from argosy.local.processes import Options, Process, Run, write_json
from argosy.local.state import State

_STABLE_SECONDS = 10.0
"""A component that ran for so long is restarted at once, without backoff."""

_MAX_BACKOFF_SECONDS = 5.0
_WRITE_RETRY_SECONDS = 1.0
"""Delay until run.json is written again after an error."""

_STOP_GRACE_SECONDS = 15.0
_MAX_DEFER_SECONDS = 1.0
"""How long the start of components that need the API server is deferred, so that it starts faster."""

_POLL_SECONDS = 0.02
_HEARTBEAT_SECONDS = 10.0
"""The longest time between heartbeats of a node; a node that may be silent for less sends more of them."""


class Component(Struct, frozen=True):
    name: str
    command: tuple[str, ...]
    after: Path | None = None
    """Deferred until this exists, so that the API server, which all wait for, has the processors."""


def components(state: State, options: Options) -> tuple[Component, ...]:
    """Return the commands of the control plane's processes in starting order; they stop in reverse."""
    python = (sys.executable, "-m")
    held = (*python, "argosy.local.deferred_start")
    folder = ("--state", str(state.folder))
    grace = ("--node-monitor-grace", str(options.node_monitor_grace))
    node = [*held, "argosy.local.node", *folder, "--nodes", str(options.nodes)]
    node += ["--pretend-gpus", str(options.pretend_gpus)]
    node += ["--heartbeat", str(min(_HEARTBEAT_SECONDS, options.node_monitor_grace / 4))]
    for name, root in options.images.items():
        node += ["--image", f"{name}={root}"]
    wanted = [
        Component("apiserver", (*held, "argosy.local.apiserver", *folder, "--port", str(options.port))),
        Component("node", tuple(node)),
        Component(
            "controllers", (*python, "argosy.local.controllers", *folder, *grace), after=state.api_socket
        ),
    ]
    if options.operator:
        kubeconfig = str(state.kubeconfigs / "operator")
        operator = (*python, "argosy", "operator", "--kubeconfig", kubeconfig, "--local", str(state.folder))
        wanted.append(Component("operator", operator, after=state.api_socket))
    return tuple(wanted)


class _Child:
    """A component with its present process and its restart backoff."""

    def __init__(self, component: Component, log: Path) -> None:
        self.component = component
        self.log = log
        self.failures = 0
        self.due = time.monotonic() + (0.0 if component.after is None else _MAX_DEFER_SECONDS)
        self.started_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def is_due(self, now: float) -> bool:
        if self.process is not None:
            return False
        after = self.component.after
        first = self.started_at == 0.0
        return self.due <= now or (first and after is not None and after.exists())

    def start(self, now: float) -> None:
        self.started_at = now
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.component.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )

    def reap(self, now: float) -> bool:
        """Schedule the next start if the process has ended; return True if it has."""
        if self.process is None or self.process.poll() is None:
            return False
        code = self.process.returncode
        self.process = None
        self.failures = 1 if now - self.started_at > _STABLE_SECONDS else self.failures + 1
        self.due = now + (0.0 if self.failures == 1 else min(0.1 * 2**self.failures, _MAX_BACKOFF_SECONDS))
        with contextlib.suppress(OSError), self.log.open("a") as log:  # the disk may be full
            log.write(f"supervisor: {self.component.name} ended with {code}; start {self.failures + 1}\n")
        return True

    def stop(self, grace: float) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Signals:
    """Waits until a child ends or a stop is requested; only SIGTERM and SIGINT request a stop.

    Not `signal.sigtimedwait`: stopped (SIGSTOP, a suspended machine) for longer than its timeout and
    continued, it returns whatever is in its memory as the signal received.
    """

    def __init__(self) -> None:
        self.stop = False
        self._wakeup, writer = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler it would not wake the loop
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())

    def _request_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True

    def wait(self, seconds: float) -> None:
        """Return at the next signal, or when the time is over."""
        select.select([self._wakeup], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, select.PIPE_BUF)


def supervise(state: State, options: Options) -> None:
    """Run until SIGTERM or SIGINT, then stop everything including pods."""
    signals = _Signals()
    children = [
        _Child(component, state.logs / f"{component.name}.log") for component in components(state, options)
    ]
    state.api_socket.unlink(missing_ok=True)
    myself = Process.of(os.getpid())
    changed = False
    while not signals.stop:
        now = time.monotonic()
        for child in children:
            changed |= child.reap(now)
            if child.is_due(now):
                try:
                    child.start(now)
                except OSError:  # the system lacks processes, memory or files: try again later
                    child.due = now + _MAX_BACKOFF_SECONDS
                changed = True
        if changed:
            alive = {c.component.name: Process.of(c.process.pid) for c in children if c.process is not None}
            changed = not _save_run(Run(options, myself, alive), state.run)
        timeout = _next_start(children, time.monotonic())
        signals.wait(min(timeout, _WRITE_RETRY_SECONDS) if changed else timeout)
    for child in reversed(children):
        child.stop(_STOP_GRACE_SECONDS)
        if child.component.name == "node":
            stop_pods(state)
    state.run.unlink(missing_ok=True)


def stop_pods(state: State) -> None:
    """End every pod of this control plane, also if its node agent was killed."""
    command = (sys.executable, "-m", "argosy.local.node", "--state", str(state.folder), "--stop")
    with (state.logs / "node.log").open("ab") as log:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, timeout=60)


def launch(state: State, options: Options, claim: socket.socket) -> subprocess.Popen[bytes]:
    """Start a supervisor that outlives the caller and keeps the claim to its port."""
    settings = ("--state", str(state.folder), "--options", msgspec.json.encode(options).decode())
    command = (sys.executable, "-m", "argosy.local.supervisor", *settings)
    with (state.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            pass_fds=(claim.fileno(),),
        )


def _save_run(run: Run, path: Path) -> bool:
    """Write run.json; return False if that failed."""
    try:
        write_json(path, run)
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{path}: {error.strerror}; trying again\n")
            sys.stderr.flush()
        return False
    return True


def _next_start(children: Sequence[_Child], now: float) -> float:
    """Return the seconds until the next component may have to be started."""
    delays = [child.due - now for child in children if child.process is None]
    is_deferred = any(child.process is None and child.started_at == 0.0 for child in children)
    return max(0.0, min([_POLL_SECONDS if is_deferred else 60.0, *delays]))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="argosy.local.supervisor", description=__doc__)
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--options", required=True, help="the options of `argosy up`, as JSON")
    arguments = parser.parse_args()
    supervise(State(arguments.state), msgspec.json.decode(arguments.options, type=Options))


if __name__ == "__main__":
    _main()
