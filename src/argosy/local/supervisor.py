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

from argosy.local.processes import Options, Process, Run
from argosy.local.state import State

_STEADY = 10.0
"""Seconds after which a component counts as started well, and its next death is answered at once."""

_LONGEST_DELAY = 5.0
_FULL_DISK = 1.0
"""Seconds until run.json is written again when it could not be."""

_GRACE = 15.0
_HEAD_START = 1.0
"""Seconds that the first components may have the processors for themselves; the rest waits no longer."""

_GLANCE = 0.02


class Component(Struct, frozen=True):
    name: str
    command: tuple[str, ...]
    after: Path | None = None
    """Starts when this is there: until then the processors are left to what everybody waits for."""


def components(state: State, options: Options) -> tuple[Component, ...]:
    """Return the commands of the control plane's processes in starting order; they stop in reverse."""
    python = (sys.executable, "-m")
    held = (*python, "argosy.local.deferred_start")
    folder = ("--state", str(state.folder))
    controllers = [*python, "argosy.local.controllers", *folder]
    if options.node_grace is not None:
        controllers += ["--node-monitor-grace", str(options.node_grace)]
    node = [*held, "argosy.local.node", *folder, "--nodes", str(options.nodes)]
    node += ["--pretend-gpus", str(options.pretend_gpus)]
    for name, root in options.images.items():
        node += ["--image", f"{name}={root}"]
    wanted = [
        Component("apiserver", (*held, "argosy.local.apiserver", *folder, "--port", str(options.port))),
        Component("node", tuple(node)),
        Component("controllers", tuple(controllers), after=state.api_socket),
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
        self.due = time.monotonic() + (0.0 if component.after is None else _HEAD_START)
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
        self.failures = 1 if now - self.started_at > _STEADY else self.failures + 1
        self.due = now + (0.0 if self.failures == 1 else min(0.1 * 2**self.failures, _LONGEST_DELAY))
        with contextlib.suppress(OSError), self.log.open("a") as log:  # a full disk is no reason to die
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
        self._woken, wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # ignored, its byte would not be written
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._order_stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())

    def _order_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True

    def wait(self, seconds: float) -> None:
        """Return at the next signal, or when the time is over."""
        select.select([self._woken], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, select.PIPE_BUF)


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
                except OSError:  # no process, no memory, no file to be had: it may be better soon
                    child.due = now + _LONGEST_DELAY
                changed = True
        if changed:
            alive = {c.component.name: Process.of(c.process.pid) for c in children if c.process is not None}
            changed = not _saved(Run(options, myself, alive), state.run)
        patience = _next_start(children, time.monotonic())
        signals.wait(min(patience, _FULL_DISK) if changed else patience)
    for child in reversed(children):
        child.stop(_GRACE)
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
    encoded = msgspec.json.encode(options).decode()
    command = (
        sys.executable,
        "-m",
        "argosy.local.supervisor",
        "--state",
        str(state.folder),
        "--options",
        encoded,
    )
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


def _saved(run: Run, path: Path) -> bool:
    try:
        run.write(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{path}: {error.strerror}; trying again\n")
            sys.stderr.flush()
        return False
    return True


def _next_start(children: Sequence[_Child], now: float) -> float:
    waiting = [child.due - now for child in children if child.process is None]
    held = any(child.process is None and child.started_at == 0.0 for child in children)
    return max(0.0, min([_GLANCE if held else 60.0, *waiting]))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="argosy.local.supervisor", description=__doc__)
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--options", required=True, help="what was asked of `argosy up`, as JSON")
    arguments = parser.parse_args()
    supervise(State(arguments.state), msgspec.json.decode(arguments.options, type=Options))


if __name__ == "__main__":
    _main()
