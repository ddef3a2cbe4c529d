"""Runs the hooks and probes of one run of a container, until the container ends or is stopped.

Every run has a new ProbeRunner, so a late result never affects the next run. The postStart hook runs first,
then the startup probe; readiness and liveness probes start when it has succeeded. Standard library only.
"""

import os
import signal
from collections.abc import Callable

from argosy.local.node import container_process, pod_state, probes, spawn
from argosy.local.node.event_loop import Timer
from argosy.local.node.pod_context import PodContext
from argosy.local.node.probes import ProbeCounter, ProbeVerdict
from argosy.local.node.runspec import Action, ProbeConfig


class ProbeRunner:
    def __init__(
        self,
        container: container_process.RunningContainer,
        state: pod_state.ContainerState,
        context: PodContext,
        stop: Callable[[float], None],
    ) -> None:
        self._container = container
        self._config = container.config
        self._state = state
        self._context = context
        self._stop = stop
        self._timers: list[Timer] = []
        self._running_pids: set[int] = set()
        self._probing = True
        self._closed = False
        self.paused = False
        """Whether the container stands still for a checkpoint: probes then wait for their next time."""

    def start(self) -> None:
        hook = self._config["post_start"]
        if not hook:
            self._start_probes()
            return

        def done(good: bool) -> None:
            if not self._probing:
                return
            if good:
                self._start_probes()
                self._context.notify_change()
            else:
                self._context.record_event(
                    "Warning", "FailedPostStartHook", f"PostStartHook of {self._config['name']} failed"
                )
                self._stop(self._context.runspec["grace"])

        self.run_action(hook, None, done)

    def stop_probing(self) -> None:
        """Ignore further results, because the container is being stopped."""
        self._probing = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def close(self) -> None:
        """End all hooks and probes, because the container has ended."""
        self.stop_probing()
        self._closed = True
        for pid in self._running_pids:
            _kill(pid)

    def run_action(self, action: Action, timeout: float | None, done: Callable[[bool], None]) -> None:
        """Run a hook or probe in parallel to the container; reports the result unless the container ended."""
        loop = self._context.loop
        try:
            pid = self._start_process(action, timeout)
        except (spawn.StartError, OSError):
            loop.call_later(0, lambda: None if self._closed else done(False))
            return
        self._running_pids.add(pid)
        limit = loop.call_later(timeout, lambda: _kill(pid)) if timeout else None

        def ended(status: int) -> None:
            self._running_pids.discard(pid)
            if limit:
                limit.cancel()
            if not self._closed:
                done(status == 0)

        loop.on_exit(pid, ended)

    def _start_process(self, action: Action, timeout: float | None) -> int:
        context = self._context
        if "exec" not in action:
            address = context.runspec["address"]
            return spawn.fork_function(lambda: probes.run_check(action, address, timeout or 30.0))
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            pid, _ = container_process.execute(
                self._container, action["exec"], {0: null, 1: null, 2: null}, tty=False
            )
        finally:
            os.close(null)
        return pid

    def _start_probes(self) -> None:
        startup = self._config["startup"]
        if startup:
            self._schedule_probe("startup", startup, ProbeCounter())
        else:
            self._on_started()

    def _on_started(self) -> None:
        self._state["started"] = True
        if self._config["readiness"]:
            self._schedule_probe("readiness", self._config["readiness"], ProbeCounter())
        else:
            self._state["ready"] = True
        if self._config["liveness"]:
            self._schedule_probe("liveness", self._config["liveness"], ProbeCounter())

    def _schedule_probe(
        self, kind: str, config: ProbeConfig, counter: ProbeCounter, *, first: bool = True
    ) -> None:
        delay = config["initial_delay"] if first else config["period"]

        def run() -> None:
            if self.paused:
                self._schedule_probe(kind, config, counter, first=False)
            else:
                self.run_action(config["action"], config["timeout"], answered)

        def answered(good: bool) -> None:
            if not self._probing:
                return
            if self.paused:
                self._schedule_probe(kind, config, counter, first=False)
                return
            noted = counter.with_result(good)
            if self._handle_result(kind, config, noted, good):
                self._schedule_probe(kind, config, noted, first=False)

        self._timers.append(self._context.loop.call_later(delay, run))

    def _handle_result(self, kind: str, config: ProbeConfig, counter: ProbeCounter, good: bool) -> bool:
        """Act on a probe's verdict; return True to continue probing."""
        name = self._config["name"]
        if not good:
            self._context.record_event(
                "Warning", "Unhealthy", f"{probes.event_name(kind)} probe failed: {name}"
            )
        verdict = counter.verdict(config)
        if verdict is ProbeVerdict.UNDECIDED:
            return True
        if kind == "readiness":
            ready = verdict is ProbeVerdict.SUCCESS
            if self._state["ready"] != ready:
                self._state["ready"] = ready
                self._context.notify_change()
            return True
        if verdict is ProbeVerdict.FAILURE:
            message = f"Container {name} failed {kind} probe, will be restarted"
            self._context.record_event("Normal", "Killing", message)
            self._stop(config["grace"] if config["grace"] is not None else self._context.runspec["grace"])
            return False
        if kind == "startup":
            self._on_started()
            self._context.notify_change()
            return False
        return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
