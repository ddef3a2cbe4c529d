"""Hooks and probes of one run of a container, from its start until it ends or is stopped.

Made anew for every run, so that what a check of one run comes to never touches the next. A postStart hook
goes first; then the startup probe, and when it has succeeded readiness and liveness. Standard library only.
"""

import os
import signal
from collections.abc import Callable

from argosy.local.node import container_process, pod_state, probes, spawn
from argosy.local.node.event_loop import Timer
from argosy.local.node.pod_context import Surroundings
from argosy.local.node.probes import Counter, Verdict
from argosy.local.node.runspec import Action, ProbePlan


class Checks:
    def __init__(
        self,
        place: container_process.Place,
        state: pod_state.ContainerReport,
        around: Surroundings,
        stop: Callable[[float], None],
    ) -> None:
        self._place = place
        self._plan = place.plan
        self._state = state
        self._around = around
        self._stop = stop
        self._timers: list[Timer] = []
        self._running: set[int] = set()
        self._probing = True
        self._over = False

    def begin(self) -> None:
        hook = self._plan["post_start"]
        if not hook:
            self._begin_probes()
            return

        def done(good: bool) -> None:
            if not self._probing:
                return
            if good:
                self._begin_probes()
                self._around.changed()
            else:
                self._around.announce(
                    "Warning", "FailedPostStartHook", f"PostStartHook of {self._plan['name']} failed"
                )
                self._stop(self._around.launch["grace"])

        self.perform(hook, None, done)

    def cease(self) -> None:
        """The container is being stopped: no probe counts any more."""
        self._probing = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def end(self) -> None:
        """The container has ended, and what was run beside it ends too."""
        self.cease()
        self._over = True
        for pid in self._running:
            _kill(pid)

    def perform(self, action: Action, timeout: float | None, done: Callable[[bool], None]) -> None:
        """Run a hook or a check beside the container and say how it went, unless the container ended."""
        loop = self._around.loop
        try:
            pid = self._start(action, timeout)
        except (spawn.StartError, OSError):
            loop.after(0, lambda: None if self._over else done(False))
            return
        self._running.add(pid)
        limit = loop.after(timeout, lambda: _kill(pid)) if timeout else None

        def ended(status: int) -> None:
            self._running.discard(pid)
            if limit:
                limit.cancel()
            if not self._over:
                done(status == 0)

        loop.on_exit(pid, ended)

    def _start(self, action: Action, timeout: float | None) -> int:
        around = self._around
        if "exec" not in action:
            address = around.launch["address"]
            return spawn.fork_call(lambda: probes.check(action, address, timeout or 30.0))
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            pid, _ = container_process.execute(
                self._place, action["exec"], {0: null, 1: null, 2: null}, tty=False
            )
        finally:
            os.close(null)
        return pid

    def _begin_probes(self) -> None:
        startup = self._plan["startup"]
        if startup:
            self._probe("startup", startup, Counter())
        else:
            self._started()

    def _started(self) -> None:
        self._state["started"] = True
        if self._plan["readiness"]:
            self._probe("readiness", self._plan["readiness"], Counter())
        else:
            self._state["ready"] = True
        if self._plan["liveness"]:
            self._probe("liveness", self._plan["liveness"], Counter())

    def _probe(self, kind: str, plan: ProbePlan, counter: Counter, *, first: bool = True) -> None:
        delay = plan["initial_delay"] if first else plan["period"]

        def run() -> None:
            self.perform(plan["action"], plan["timeout"], answered)

        def answered(good: bool) -> None:
            if not self._probing:
                return
            noted = counter.note(good)
            if self._judge(kind, plan, noted, good):
                self._probe(kind, plan, noted, first=False)

        self._timers.append(self._around.loop.after(delay, run))

    def _judge(self, kind: str, plan: ProbePlan, counter: Counter, good: bool) -> bool:
        """Act on what a probe has come to; says whether to go on probing."""
        name = self._plan["name"]
        if not good:
            self._around.announce("Warning", "Unhealthy", f"{probes.refused_name(kind)} probe failed: {name}")
        verdict = counter.verdict(plan)
        if verdict is Verdict.UNDECIDED:
            return True
        if kind == "readiness":
            ready = verdict is Verdict.SUCCESS
            if self._state["ready"] != ready:
                self._state["ready"] = ready
                self._around.changed()
            return True
        if verdict is Verdict.FAILURE:
            what = f"Container {name} failed {kind} probe, will be restarted"
            self._around.announce("Normal", "Killing", what)
            self._stop(plan["grace"] if plan["grace"] is not None else self._around.launch["grace"])
            return False
        if kind == "startup":
            self._started()
            self._around.changed()
            return False
        return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
