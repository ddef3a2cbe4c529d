"""Tests that a notice costs no step of training that was computed before it, if there is time to save.

A training is simulated second by second: one step a second, or a second of saving. Its node ends at the
announced time, whatever the job has done by then. What is lost are the steps that the next pod repeats.
"""

from typing import NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.announcements import NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import RestartPolicy, RestartScope, Rules
from argosy.workload.observed import ObservedPod
from argosy.workload.record_encoding import decode
from argosy.workload.save_intervals import MAX_JITTER_SHARE
from argosy.workload.saves import (
    FIRST_SAVE_SECONDS,
    INTERVAL_GRACE_SECONDS,
    MARGIN_SECONDS,
    SAVE_TIME_FACTOR,
)
from tests.support.fake_cluster import NODES, FakeCluster
from tests.support.workloads import role, workload

GRACE_SECONDS = 30
"""Kubernetes' grace period of a pod that sets none."""
DELAYS = 4
"""Seconds that observation, order, acknowledgement and rounding to whole seconds may take together."""


class Case(Struct, frozen=True):
    notice_at: int
    """Seconds after the first pod was created."""
    lead: int
    """From the notice until the node ends."""
    save_seconds: int
    start_seconds: int
    """From the creation of a pod until its program trains."""
    interval: int
    on_signal: bool = False


class Loss(NamedTuple):
    steps: int
    since_notice: int
    """The steps that were computed after the notice."""


class Program:
    """The training in one pod."""

    def __init__(self, step: int, second: int) -> None:
        self.step = step
        self.starts_at = second
        self.saves_until: int | None = None
        self.saving: tuple[int, int] = (0, 0)
        """Step and order of the checkpoint that is being saved."""
        self.answered = 0

    def begin_save(self, second: int, seconds: int, epoch: int) -> None:
        self.saves_until, self.saving = second + seconds, (self.step, epoch)


class Machines(FakeCluster):
    """Nodes of which one ends; new pods are not placed there once that is announced."""

    def _next_node(self) -> str:
        return next(node for node in NODES if node not in self.announced)


class Training:
    """A job of one pod, and its store."""

    def __init__(self, case: Case) -> None:
        interval = None if case.on_signal else float(case.interval)
        policy = CheckpointPolicy("file:///store", interval=interval, saves_on_signal=case.on_signal)
        rules = Rules(succeeded_when=(("worker",),), restart_scope=RestartScope.JOB)
        wanted = workload(role("worker", 1, RestartPolicy.ON_FAILURE), rules=rules)
        self.case = case
        self.cluster = Machines(replace(wanted, checkpoint=policy))
        self.second = 0
        self.stored = 0
        """Step of the newest checkpoint."""
        self.programs: dict[str, Program] = {}
        self.step_at_notice = 0
        self.reached = 0
        self.saves_left_at_notice = 0
        """Seconds that the save under way still takes when the end is announced."""
        self.has_saved_at_notice = False
        self.loss: Loss | None = None

    def run(self) -> Loss:
        case = self.case
        end = case.notice_at + case.lead
        while self.loss is None and self.second < end + 200:
            if self.second == case.notice_at:
                self._announce()
            if self.second == end:
                self._end_node()
            self._reconcile()
            for pod in list(self.cluster.pods.values()):
                self._live(pod)
            self.second += 1
            self.cluster.advance(1)
        assert self.loss is not None, "the training continues elsewhere"
        return self.loss

    def _announce(self) -> None:
        self.cluster.announce(NODES[0], NoticeCause.PREEMPTED, self.case.lead)
        for program in self.programs.values():
            self.step_at_notice = program.step
            self.saves_left_at_notice = max((program.saves_until or 0) - self.second, 0)
        self.has_saved_at_notice = self.stored > 0

    def _end_node(self) -> None:
        for pod in list(self.cluster.pods.values()):
            if pod.node == NODES[0]:
                self.cluster.remove(pod) if pod.terminating else self.cluster.update(
                    replace(pod, phase="Failed", disrupted=True)
                )

    def _reconcile(self) -> None:
        for _ in range(3):
            self.cluster.sync()
            before = self.cluster.job, self.cluster.version
            self.cluster.reconcile()
            if before == (self.cluster.job, self.cluster.version):
                return

    def _live(self, pod: ObservedPod) -> None:
        """Let a pod do what it does within a second."""
        if pod.ended or not pod.node:
            if pod.terminating:
                self.cluster.remove(pod)
            return
        program = self.programs.get(pod.uid)
        if program is None:
            if self.programs:
                self.loss = Loss(self.reached - self.stored, self.reached - self.step_at_notice)
            program = Program(self.stored, self.second + self.case.start_seconds)
            self.programs[pod.uid] = program
        if self.second < program.starts_at:
            if pod.terminating:
                self.cluster.remove(pod)
            return
        if pod.phase == "Pending":
            self.cluster.update(replace(pod, phase="Running"))
        if pod.terminating:
            self._end(pod, program)
        elif program.saves_until is not None:
            self._save(pod, program)
        else:
            self._train(program)

    def _train(self, program: Program) -> None:
        stored = decode(self.cluster.job.status) if self.cluster.job else None
        order = stored.order_in_force if stored and not self.case.on_signal else None
        if order is not None and order.epoch > program.answered:
            program.begin_save(self.second, self.case.save_seconds, order.epoch)
            return
        program.step += 1
        self.reached = max(self.reached, program.step)

    def _save(self, pod: ObservedPod, program: Program) -> None:
        """Go on with a checkpoint; if it is complete, acknowledge it."""
        if program.saves_until is None or self.second < program.saves_until:
            return
        self.stored, epoch = program.saving
        program.saves_until, program.answered = None, epoch
        digest = f"sha256:{self.stored:032}{epoch:032}"
        seconds = float(self.case.save_seconds)
        saved = SavedCheckpoint(self.stored, digest, self.cluster.now, seconds=seconds, epoch=epoch)
        self.cluster.update(replace(pod, saved=saved))

    def _end(self, pod: ObservedPod, program: Program) -> None:
        """Save after SIGTERM within the grace period, and end."""
        assert pod.deletion_time is not None
        is_killed = self.cluster.now >= pod.deletion_time
        if self.case.on_signal and not is_killed:
            if program.saves_until is None:
                program.begin_save(self.second, self.case.save_seconds, 0)
                return
            self._save(pod, program)
            if program.saves_until is not None:
                return
        self.cluster.remove(self.cluster.pods[pod.name])


CASES = st.builds(
    Case,
    notice_at=st.integers(1, 90),
    lead=st.integers(1, 60),
    save_seconds=st.integers(1, 12),
    start_seconds=st.integers(0, 20),
    interval=st.integers(10, 120),
    on_signal=st.booleans(),
)


def fits(training: Training) -> bool:
    """Return True if there was time for a checkpoint after the notice, also if one was under way."""
    case = training.case
    if case.on_signal:
        return min(GRACE_SECONDS, case.lead - MARGIN_SECONDS) >= case.save_seconds + DELAYS
    known = case.save_seconds * SAVE_TIME_FACTOR if training.has_saved_at_notice else FIRST_SAVE_SECONDS
    needed = max(known, training.saves_left_at_notice + case.save_seconds)
    return case.lead - MARGIN_SECONDS >= needed + DELAYS


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(CASES)
@example(Case(60, 20, 2, 1, 40))
@example(Case(60, 30, 2, 1, 120))
@example(Case(33, 30, 10, 0, 30))
@example(Case(60, 6, 2, 1, 30))
@example(Case(40, 20, 5, 1, 30, on_signal=True))
def test_steps_lost_are_those_since_the_notice_or_of_one_interval(case: Case) -> None:
    training = Training(case)
    loss = training.run()
    if fits(training):
        assert loss.steps <= loss.since_notice
    elif not case.on_signal:
        longest = case.interval * (1 + MAX_JITTER_SHARE) + INTERVAL_GRACE_SECONDS + DELAYS
        assert loss.steps <= longest
