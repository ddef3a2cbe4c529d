"""Runs one container inside the shim: its process, its log and its reported state.

A supervisor starts and stops its container, run after run, and notifies the pod when something changed. The
pod decides whether the container should run at all (lifecycle.py); probe_runner.py runs hooks and probes.
Standard library only.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from argosy.local.node import cgroups, container_process, logs, pod_state
from argosy.local.node.event_loop import Timer
from argosy.local.node.lifecycle import next_backoff
from argosy.local.node.pod_context import Surroundings
from argosy.local.node.probe_runner import Checks
from argosy.local.node.runspec import ContainerPlan, Launch
from argosy.local.node.spawn import StartError

_CHUNK = 1 << 16
_MESSAGE_LIMIT = 4096
_START_FAILED = 128
_HOOK_EXTRA_SECONDS = 2.0
_KILL_ROUNDS = 100


class Box:
    def __init__(
        self, plan: ContainerPlan, around: Surroundings, before: pod_state.ContainerReport | None
    ) -> None:
        self.plan = plan
        self.report = before or pod_state.waiting(plan["name"], _first_reason(around.launch, plan))
        self.listeners: list[Callable[[str, bytes], None]] = []
        self.stdin: int | None = None
        self.terminal: int | None = None
        self.restart_not_before = 0.0
        self.stopping = False
        self._around = around
        self._backoff = 0.0
        self._process: container_process.Process | None = None
        self._place: container_process.Place | None = None
        self._log: logs.LogWriter | None = None
        self._timers: list[Timer] = []
        self._checks: Checks | None = None
        self._open_outputs = 0
        self._status: int | None = None
        self._generation = 0
        self._memory_kills_before = 0
        self._runs = 0 if before is None else before["restarts"] + 1

    @property
    def name(self) -> str:
        return self.plan["name"]

    @property
    def place(self) -> container_process.Place | None:
        return self._place if self.report["running"] else None

    @property
    def group(self) -> str:
        return self._around.group(self.name)

    def start(self) -> None:
        """Begin a run. A start that fails is a run that ended at once, as with any container runtime."""
        if self.report["ended"] is not None or self._runs:
            self.report["last"] = self.report["ended"] or self.report["last"]
            self.report["restarts"] = self._runs
        run, self._runs = self._runs, self._runs + 1
        self._generation += 1
        self.stopping, self._status = False, None
        launch, folder = self._around.launch, self._around.folder
        scratch = self._scratch(run)
        self._log = logs.LogWriter(
            logs.log_path(folder, self.name, run),
            launch["log_bytes"],
            earliest=self._log.latest if self._log else 0.0,
        )
        now = time.time()
        self.report.update(
            {"ended": None, "waiting": "", "waiting_message": "", "ready": False, "started": False}
        )
        try:
            if self._around.hierarchy:
                cgroups.create(self._around.hierarchy, self.group, self.plan["memory"], self.plan["cpu"])
                self._memory_kills_before = self._memory_kills()  # a group that outlived its last run
            bounds = container_process.Bounds(self._around.pids(scratch), self._around.hierarchy, self.group)
        except (StartError, OSError) as error:
            self._log.close()
            self._finish(_START_FAILED, 0, "StartError", str(error), now)
            return
        try:
            process = container_process.start(launch, self.plan, folder, scratch, bounds)
        except (StartError, OSError) as error:
            self._log.close()
            self._leave(bounds)
            self._finish(_START_FAILED, 0, "StartError", str(error), now)
            return
        self._process, self.report["running"] = process, now
        self.stdin, self.terminal = process.stdin, process.terminal
        bounds.pids.known_shut()
        self._place = container_process.Place(
            self.plan, process.pid, process.mount_namespace, bounds, launch["rootless"]
        )
        for descriptor, stream in process.outputs.items():
            self._listen(descriptor, stream)
        self._around.loop.on_exit(process.pid, self._exited)
        self._checks = Checks(self._place, self.report, self._around, self.stop)
        self._checks.begin()
        self._around.changed()

    def stop(self, grace: float) -> None:
        """preStop hook, then the stop signal, then after `grace` seconds the end of every process in it."""
        if not self.report["running"]:
            return
        loop, generation = self._around.loop, self._generation
        if grace <= 0:
            self.kill()
            return
        hook = self.plan["pre_stop"]
        if self.stopping:
            self._timers.append(loop.after(grace, lambda: self._kill_run(generation)))
            return
        self.stopping = True
        if self._checks:
            self._checks.cease()
        self._timers.append(
            loop.after(grace + (_HOOK_EXTRA_SECONDS if hook else 0.0), lambda: self._kill_run(generation))
        )
        if hook and self._checks:
            self._checks.perform(hook, grace, lambda _: self.signal(self.plan["stop_signal"]))
        else:
            self.signal(self.plan["stop_signal"])

    def signal(self, number: int) -> None:
        if self._process and self.report["running"]:
            _kill(self._process.pid, number)

    def kill(self) -> None:
        """End every process of the container, wherever in the tree it is by now."""
        if self._place is None:
            return
        if not self._around.launch["share_pids"]:
            self._place.bounds.pids.kill()
            return
        killed: set[int] = set()
        for _ in range(_KILL_ROUNDS):  # what they fork meanwhile is found by the next look
            found = container_process.processes(self._place) - killed
            if not found:
                return
            for pid in found:
                _kill(pid, signal.SIGKILL)
            killed |= found

    def write_stdin(self, data: bytes) -> None:
        if self.stdin is not None:
            try:
                os.write(self.stdin, data)
            except OSError:
                return

    def close_stdin(self) -> None:
        if self.stdin is not None and self.terminal is None:
            os.close(self.stdin)
            self.stdin = None

    def _kill_run(self, generation: int) -> None:
        if generation == self._generation and self.report["running"]:
            self.kill()

    def _listen(self, descriptor: int, stream: str) -> None:
        os.set_blocking(descriptor, False)
        self._open_outputs += 1
        self._around.loop.on_readable(descriptor, lambda: self._read(descriptor, stream))

    def _read(self, descriptor: int, stream: str) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose last user left says EIO
            data = b""
        if not data:
            self._around.loop.forget(descriptor)
            if descriptor == self.terminal:
                self.stdin = self.terminal = None
            os.close(descriptor)
            self._open_outputs -= 1
            self._perhaps_ended()
            return
        if self._log:
            self._log.write(stream, data)
        for listener in self.listeners:
            listener(stream, data)

    def _exited(self, status: int) -> None:
        """The first process is gone; the container ends with it. What it wrote last is still in the pipes."""
        self._status = status
        self.kill()
        self._perhaps_ended()
        if self.report["running"]:
            generation = self._generation
            self._timers.append(self._around.loop.after(1.0, lambda: self._drop_outputs(generation)))

    def _drop_outputs(self, generation: int) -> None:
        """A process that outlives SIGKILL for long (stuck in the kernel) does not keep the container."""
        if generation == self._generation and self.report["running"]:
            self._open_outputs = 0
            self._perhaps_ended()

    def _perhaps_ended(self) -> None:
        started = self.report["running"]
        if self._status is None or self._open_outputs > 0 or started is None or self._process is None:
            return
        if self._log:
            self._log.close()
        self.close_stdin()
        self._cancel_timers()
        if self._checks:
            self._checks.end()
        code, number = _exit_code(self._status)
        killed = self._memory_kills() > self._memory_kills_before and number == signal.SIGKILL
        reason = "OOMKilled" if killed else "Error" if code else "Completed"
        if self._place:
            os.close(self._place.mount_namespace)
            self._leave(self._place.bounds)
            self._place = None
        self._finish(code, number, reason, self._message(code), started)

    def _memory_kills(self) -> int:
        hierarchy = self._around.hierarchy
        return cgroups.out_of_memory_kills(hierarchy, self.group) if hierarchy else 0

    def _leave(self, bounds: container_process.Bounds) -> None:
        """Give back what a run was held in; a shared PID namespace stays for the others."""
        if not self._around.launch["share_pids"]:
            bounds.pids.kill()
            bounds.pids.close()
        if bounds.hierarchy:
            cgroups.remove(bounds.hierarchy, bounds.group)

    def _finish(self, code: int, number: int, reason: str, message: str, started: float) -> None:
        ended = pod_state.Ended(
            exit_code=code,
            signal=number,
            reason=reason,
            message=message,
            started=started,
            finished=time.time(),
        )
        self.report.update({"running": None, "ended": ended, "ready": False, "started": False})
        self._process = None
        self.restart_not_before = time.monotonic() + self._backoff
        self._pause = self._backoff
        self._backoff = next_backoff(
            self._backoff, ended, self._around.launch["first_backoff"], self._around.launch["longest_backoff"]
        )
        self._around.changed()

    @property
    def pause(self) -> float:
        """The back-off that holds the next start up, in seconds."""
        return self._pause

    def back_off(self) -> None:
        """Say in the report that the next start is being held up."""
        ended, launch = self.report["ended"], self._around.launch
        if ended is None or self.report["waiting"] == "CrashLoopBackOff":
            return
        seconds = _duration(self._pause)
        self.report["waiting"] = "CrashLoopBackOff"
        self.report["waiting_message"] = (
            f"back-off {seconds} restarting failed container={self.name} "
            f"pod={launch['name']}_{launch['namespace']}({launch['uid']})"
        )
        self._around.announce(
            "Warning",
            "BackOff",
            f"Back-off restarting failed container {self.name} in pod "
            f"{launch['name']}_{launch['namespace']}({launch['uid']})",
        )

    def _message(self, code: int) -> str:
        scratch = self._scratch(self._runs - 1)
        try:
            text = (scratch / "message").read_bytes()[:_MESSAGE_LIMIT].decode(errors="replace")
        except OSError:
            text = ""
        if not text and code and self.plan["message_from_logs"]:
            path = logs.log_path(self._around.folder, self.name, self._runs - 1)
            text = logs.tail_text(path, 80, 2048)
        return text

    def _scratch(self, run: int) -> Path:
        return self._around.folder / "containers" / self.name / str(run)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    _pause = 0.0


def _first_reason(launch: Launch, plan: ContainerPlan) -> str:
    has_init = any(other["kind"] != "main" for other in launch["containers"])
    first = launch["containers"][0] is plan
    return "PodInitializing" if has_init and not first else "ContainerCreating"


def _exit_code(status: int) -> tuple[int, int]:
    """Exit code as a container runtime gives it (128 + signal), and the signal."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    return os.WEXITSTATUS(status), 0


def _duration(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{seconds:g}s"


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
