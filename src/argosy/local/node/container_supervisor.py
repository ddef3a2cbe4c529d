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

from argosy.local.node import cgroups, container_dump, container_process, logs, pod_state
from argosy.local.node.container_restore import Restore
from argosy.local.node.event_loop import Timer
from argosy.local.node.lifecycle import format_duration, next_backoff
from argosy.local.node.pod_context import PodContext
from argosy.local.node.probe_runner import ProbeRunner
from argosy.local.node.runspec import ContainerConfig, RunSpec
from argosy.local.node.spawn import StartError

_READ_BYTES = 1 << 16
_MAX_MESSAGE_BYTES = 4096
_START_FAILED_EXIT_CODE = 128
_HOOK_EXTRA_SECONDS = 2.0
_KILL_ROUNDS = 100
_STREAM_NUMBERS = {"stdout": "1", "stderr": "2"}


class ContainerSupervisor:
    def __init__(
        self, config: ContainerConfig, context: PodContext, previous: pod_state.ContainerState | None
    ) -> None:
        self.config = config
        self.state = previous or pod_state.waiting_state(
            config["name"], _initial_waiting_reason(context.runspec, config)
        )
        self.listeners: list[Callable[[str, bytes], None]] = []
        self.stdin: int | None = None
        self.terminal: int | None = None
        self.restart_not_before = 0.0
        self.stopping = False
        self.restoring = False
        """Whether a run is being restored from a checkpoint, and neither runs nor has ended."""
        self._dumping = False
        self._context = context
        self._backoff = 0.0
        self._process: container_process.Process | None = None
        self._container: container_process.RunningContainer | None = None
        self._log: logs.LogWriter | None = None
        self._timers: list[Timer] = []
        self._probe_runner: ProbeRunner | None = None
        self._open_outputs = 0
        self._wait_status: int | None = None
        self._generation = 0
        self._oom_kills_before = 0
        self._runs = 0 if previous is None else previous["restarts"] + 1

    @property
    def name(self) -> str:
        return self.config["name"]

    @property
    def running(self) -> container_process.RunningContainer | None:
        return self._container if self.state["running"] else None

    @property
    def cgroup(self) -> str:
        return self._context.cgroup(self.name)

    def start(self) -> None:
        """Start a run. A failed start is a run that ended at once, as in container runtimes."""
        scratch, now = self._begin_run(), time.time()
        runspec, folder = self._context.runspec, self._context.folder
        isolation = None
        try:
            isolation = self._isolate(scratch)
            if self.config["restore"]:
                self._start_restore(scratch, isolation, now)
                return
            process = container_process.start(runspec, self.config, folder, scratch, isolation)
        except (StartError, OSError) as error:
            self._fail_start(isolation, str(error), now)
            return
        self._on_started(process, isolation)

    def _start_restore(self, scratch: Path, isolation: container_process.Isolation, now: float) -> None:
        """Start a run from its checkpoint; the container counts as running when it has been restored."""
        container_process.make_scratch(scratch)

        def done(process: container_process.Process | None, problem: str) -> None:
            self.restoring = False
            if process is not None:
                self._on_started(process, isolation)
                return
            self._fail_start(isolation, problem, now)

        context = self._context
        restore = Restore(
            context.runspec, self.config, context.folder, scratch, isolation, context.loop, done
        )
        restore.start()
        self.restoring, self.state["waiting"] = True, "ContainerCreating"

    def _on_started(self, process: container_process.Process, isolation: container_process.Isolation) -> None:
        self._process = process
        self.state.update({"running": time.time(), "waiting": ""})
        self.stdin, self.terminal = process.stdin, process.terminal
        isolation.pid_namespace.mark_sealed()
        self._container = container_process.RunningContainer(
            self.config, process.pid, process.mount_namespace, isolation, self._context.runspec["rootless"]
        )
        for descriptor, stream in process.outputs.items():
            self._read_output(descriptor, stream)
        self._context.loop.on_exit(process.pid, self._on_exit)
        self._probe_runner = ProbeRunner(self._container, self.state, self._context, self.stop)
        self._probe_runner.start()
        self._context.notify_change()

    def _fail_start(self, isolation: container_process.Isolation | None, problem: str, now: float) -> None:
        assert self._log is not None
        self._log.close()
        if isolation is not None:
            self._release(isolation)
        if self.config["restore"]:
            self._context.record_event("Warning", "Failed", f"Error: container {self.name}: {problem}")
        self._finish(_START_FAILED_EXIT_CODE, 0, "StartError", problem, now)

    def checkpoint(self, target: Path, prefix: Path, image: str, done: Callable[[str], None]) -> None:
        """Dump the container to `target` in a child process; calls back with the problem, or nothing."""
        container, scratch = self._container, self._scratch(self._runs - 1)
        if container is None or not self.state["running"] or self._process is None:
            done("the container is not running")
            return
        runspec = self._context.runspec
        problem = container_dump.find_obstacle(runspec, self.config, scratch)
        if problem or self._dumping:
            done(problem or "another checkpoint of this container is being made")
            return
        pipes = {
            _STREAM_NUMBERS[name]: os.fstat(number).st_ino for number, name in self._process.outputs.items()
        }
        if self.stdin is not None:
            pipes["0"] = os.fstat(self.stdin).st_ino
        job = container_dump.DumpJob(
            runspec, container, self._context.folder, scratch, pipes, image, prefix, target
        )
        self._set_dumping(True)

        def ended(problem: str) -> None:
            self._set_dumping(False)
            done(problem)

        container_dump.start(job, self._context.loop, ended)

    def _set_dumping(self, dumping: bool) -> None:
        """Note that the container stands still, so that its probes cannot succeed."""
        self._dumping = dumping
        if self._probe_runner:
            self._probe_runner.paused = dumping

    def _begin_run(self) -> Path:
        """Count the run, reset the state and open the log; return the run's scratch folder."""
        if self.state["ended"] is not None or self._runs:
            self.state["last"] = self.state["ended"] or self.state["last"]
            self.state["restarts"] = self._runs
        run, self._runs = self._runs, self._runs + 1
        self._generation += 1
        self.stopping, self._wait_status = False, None
        self._log = logs.LogWriter(
            logs.log_path(self._context.folder, self.name, run),
            self._context.runspec["log_bytes"],
            earliest=self._log.latest if self._log else 0.0,
        )
        self.state.update(
            {"ended": None, "waiting": "", "waiting_message": "", "ready": False, "started": False}
        )
        return self._scratch(run)

    def _isolate(self, scratch: Path) -> container_process.Isolation:
        """Create the cgroup and the PID namespace of a run."""
        hierarchy = self._context.cgroup_hierarchy
        if hierarchy:
            cgroups.create(hierarchy, self.cgroup, self.config["memory"], self.config["cpu"])
            self._oom_kills_before = self._oom_kills()  # those of earlier runs, if the cgroup existed
        return container_process.Isolation(self._context.pid_namespace(scratch), hierarchy, self.cgroup)

    def stop(self, grace: float) -> None:
        """Run the preStop hook, send the stop signal, and after `grace` seconds kill every process."""
        if not self.state["running"]:
            return
        loop, generation = self._context.loop, self._generation
        if grace <= 0:
            self.kill()
            return
        hook = self.config["pre_stop"]
        if self.stopping:
            self._timers.append(loop.call_later(grace, lambda: self._kill_run(generation)))
            return
        self.stopping = True
        if self._probe_runner:
            self._probe_runner.stop_probing()
        self._timers.append(
            loop.call_later(
                grace + (_HOOK_EXTRA_SECONDS if hook else 0.0), lambda: self._kill_run(generation)
            )
        )
        if hook and self._probe_runner:
            self._probe_runner.run_action(hook, grace, lambda _: self.signal(self.config["stop_signal"]))
        else:
            self.signal(self.config["stop_signal"])

    def signal(self, number: int) -> None:
        if self._process and self.state["running"]:
            _kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill every process of the container."""
        if self._container is None:
            return
        if not self._context.runspec["share_pids"]:
            self._container.isolation.pid_namespace.kill()
            return
        killed: set[int] = set()
        for _ in range(_KILL_ROUNDS):  # processes forked meanwhile are found in the next round
            pids = container_process.processes(self._container) - killed
            if not pids:
                return
            for pid in pids:
                _kill(pid, signal.SIGKILL)
            killed |= pids

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
        if generation == self._generation and self.state["running"]:
            self.kill()

    def _read_output(self, descriptor: int, stream: str) -> None:
        os.set_blocking(descriptor, False)
        self._open_outputs += 1
        self._context.loop.on_readable(descriptor, lambda: self._read(descriptor, stream))

    def _read(self, descriptor: int, stream: str) -> None:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # a terminal that its last process has closed returns EIO
            data = b""
        if not data:
            self._context.loop.remove_reader(descriptor)
            if descriptor == self.terminal:
                self.stdin = self.terminal = None
            os.close(descriptor)
            self._open_outputs -= 1
            self._finish_if_ended()
            return
        if self._log:
            self._log.write(stream, data)
        for listener in self.listeners:
            listener(stream, data)

    def _on_exit(self, status: int) -> None:
        """The first process has exited, and the container with it. Its last output is still in the pipes."""
        self._wait_status = status
        self.kill()
        self._finish_if_ended()
        if self.state["running"]:
            generation = self._generation
            self._timers.append(self._context.loop.call_later(1.0, lambda: self._drop_outputs(generation)))

    def _drop_outputs(self, generation: int) -> None:
        """Stop waiting for output: a process stuck in the kernel must not keep the container running."""
        if generation == self._generation and self.state["running"]:
            self._open_outputs = 0
            self._finish_if_ended()

    def _finish_if_ended(self) -> None:
        started = self.state["running"]
        if self._wait_status is None or self._open_outputs > 0 or started is None or self._process is None:
            return
        if self._log:
            self._log.close()
        self.close_stdin()
        self._cancel_timers()
        if self._probe_runner:
            self._probe_runner.close()
        code, number = pod_state.exit_code(self._wait_status)
        killed = self._oom_kills() > self._oom_kills_before and number == signal.SIGKILL
        reason = "OOMKilled" if killed else "Error" if code else "Completed"
        if self._container:
            os.close(self._container.mount_namespace)
            self._release(self._container.isolation)
            self._container = None
        self._finish(code, number, reason, self._termination_message(code), started)

    def _oom_kills(self) -> int:
        hierarchy = self._context.cgroup_hierarchy
        return cgroups.oom_kill_count(hierarchy, self.cgroup) if hierarchy else 0

    def _release(self, isolation: container_process.Isolation) -> None:
        """Release the PID namespace and cgroup of a run; a shared PID namespace is kept."""
        if not self._context.runspec["share_pids"]:
            isolation.pid_namespace.kill()
            isolation.pid_namespace.close()
        if isolation.cgroup_hierarchy:
            cgroups.remove(isolation.cgroup_hierarchy, isolation.cgroup)

    def _finish(self, code: int, number: int, reason: str, message: str, started: float) -> None:
        ended = pod_state.Termination(
            exit_code=code,
            signal=number,
            reason=reason,
            message=message,
            started=started,
            finished=time.time(),
        )
        self.state.update({"running": None, "ended": ended, "ready": False, "started": False})
        self._process = None
        self.restart_not_before = time.monotonic() + self._backoff
        self._pause = self._backoff
        self._backoff = next_backoff(
            self._backoff,
            ended,
            self._context.runspec["first_backoff"],
            self._context.runspec["longest_backoff"],
        )
        self._context.notify_change()

    @property
    def pause(self) -> float:
        """The backoff before the next start, in seconds."""
        return self._pause

    def report_backoff(self) -> None:
        """Show CrashLoopBackOff in the state, and record the event once."""
        ended, runspec = self.state["ended"], self._context.runspec
        if ended is None or self.state["waiting"] == "CrashLoopBackOff":
            return
        seconds = format_duration(self._pause)
        self.state["waiting"] = "CrashLoopBackOff"
        self.state["waiting_message"] = (
            f"back-off {seconds} restarting failed container={self.name} "
            f"pod={runspec['name']}_{runspec['namespace']}({runspec['uid']})"
        )
        self._context.record_event(
            "Warning",
            "BackOff",
            f"Back-off restarting failed container {self.name} in pod "
            f"{runspec['name']}_{runspec['namespace']}({runspec['uid']})",
        )

    def _termination_message(self, code: int) -> str:
        scratch = self._scratch(self._runs - 1)
        try:
            text = (scratch / "message").read_bytes()[:_MAX_MESSAGE_BYTES].decode(errors="replace")
        except OSError:
            text = ""
        if not text and code and self.config["message_from_logs"]:
            path = logs.log_path(self._context.folder, self.name, self._runs - 1)
            text = logs.tail_text(path, 80, 2048)
        return text

    def _scratch(self, run: int) -> Path:
        return self._context.folder / "containers" / self.name / str(run)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    _pause = 0.0


def _initial_waiting_reason(runspec: RunSpec, config: ContainerConfig) -> str:
    has_init = any(other["kind"] != "main" for other in runspec["containers"])
    first = runspec["containers"][0] is config
    return "PodInitializing" if has_init and not first else "ContainerCreating"


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
