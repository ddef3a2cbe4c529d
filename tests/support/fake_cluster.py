"""Simulates a cluster with one job, to test reconciles against crashes, stale caches and lost state.

It simulates what surrounds `decide`: caches that lag, status writes that conflict, creations by name,
deletions by uid, nodes that run pods and fail. Violations that show at the moment they happen are assertions
here.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.migration import BuiltImage, CheckpointBackup, CheckpointBackupStatus
from argosy.plan.actions import Apply, Remove
from argosy.plan.children import KubernetesObject
from argosy.reconcile.job_state import Deferred, JobState
from argosy.reconcile.losses import IN_A_ROW_SECONDS, RecentLosses
from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.decide import decide, plan_invalid
from argosy.workload.gang_schedulers.volcano import GROUP
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Problem, Problems, Workload
from argosy.workload.notice import NoticeResponse, SaveStep
from argosy.workload.notice_response import find_notices
from argosy.workload.observed import Observed, ObservedGroup, ObservedPod
from argosy.workload.plan import (
    Action,
    ConfirmPod,
    CreatePod,
    DeleteJob,
    DeletePod,
    Plan,
)
from argosy.workload.pods import LOSS_DELAY_SECONDS
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode
from argosy.workload.record_sync import is_recoverable_from_pods, sync_record
from tests.support import invariants
from tests.support.manual_clock import ManualClock
from tests.support.workloads import NOW, existing_child

_BROKEN = Problems((Problem("spec", "is broken"),))
NODES = ("node-1", "node-2", "node-3")


class Crash(Exception):  # noqa: N818 - an event, not an error
    """The operator was killed."""


class Job(Struct, frozen=True):
    """The stored job object."""

    workload: Workload
    version: int = 1
    status: dict[str, object] | None = None


class NodeState(Enum):
    """The state of a node, and how the API server shows it."""

    READY = "Ready"
    PARTLY_UNKNOWN = "PartlyUnknown"
    """The node works, and a condition other than Ready is Unknown."""
    CUT_OFF = "CutOff"
    """Ready is Unknown; the containers may still run."""
    OUT_OF_SERVICE = "OutOfService"
    """Ready is Unknown, and an administrator has set the taint out-of-service."""
    GONE = "Gone"
    """The Node object was deleted."""

    @property
    def works(self) -> bool:
        return self in (NodeState.READY, NodeState.PARTLY_UNKNOWN)

    @property
    def runs_nothing(self) -> bool:
        return self in (NodeState.OUT_OF_SERVICE, NodeState.GONE)


class Replica:
    """One operator process: its caches, and its state between reconciles."""

    def __init__(self, job: Job | None, clock: ManualClock) -> None:
        self.cached_job = job
        self.cached_pods: dict[str, ObservedPod] = {}
        self.confirmed_absent: set[tuple[str, int]] = set()
        self.recently_deleted: dict[str, ObservedPod] = {}
        """Pods that were deleted from the caches, until another pod of the same name exists."""
        self.memory = JobState(uid="job")
        self.term_began_at = 0
        """The version of the job when this replica became the leader."""
        self.losses = RecentLosses(clock)
        self.created_at: dict[tuple[str, int], list[float]] = {}
        """The times at which this replica created pods, by role and index."""
        self._observed: dict[str, ObservedPod] = {}

    def note_losses(self) -> None:
        """Record the pods that were deleted from the caches since the last call."""
        pods = {pod.uid: pod for pod in self.cached_pods.values()}
        for uid, before in self._observed.items():
            self.losses.pod_changed("job", before, pods.get(uid))
        self._observed = pods

    def end_term(self) -> None:
        self.memory = JobState(uid="job")


class FakeCluster:
    def __init__(self, workload: Workload) -> None:
        self.now: datetime = NOW
        self.job: Job | None = Job(workload)
        self.pods: dict[str, ObservedPod] = {}
        self.children: dict[tuple[type[KubernetesObject], str], KubernetesObject] = {}
        self.group: ObservedGroup | None = None
        self.nodes = dict.fromkeys(NODES, NodeState.READY)
        self.unconfirmed: set[str] = set()
        """Nodes that are missing in the caches and not yet confirmed by the API server."""
        self.clock = ManualClock()
        """The monotonic clock; `now` is the time of day."""
        self.in_burst = False
        """Many jobs are reconciled at once, so status writes are deferred."""
        self.prunes_record = False
        self.record_lost = False
        """A Record that was written has been lost."""
        self.broken = False
        """The definition is invalid; a reconcile only reports it."""
        self.created_count = self.placed_count = self.steps = 0
        self.version = 0
        self.writes = 0
        self.moved: set[tuple[int, str]] = set()
        """Orders after which pods were moved, with the notice: each must be once."""
        self.resize_orders: dict[str, int] = {}
        """Numbers of the orders before new sizes, by id: each size has one."""
        self.failed: set[str] = set()
        """Uids of pods that failed by themselves."""
        self.counted: set[str] = set()
        """The uids of failed pods for which a restart was recorded."""
        self.leader, self.standby = Replica(self.job, self.clock), Replica(self.job, self.clock)
        self.snapshots: list[dict[str, ObservedPod]] = [{}]
        self.deleted: set[tuple[str, int, str]] = set()
        """Role, index and uid of deleted pods."""
        self.backed_up: dict[str, str] = {}
        """Names of all CheckpointBackups that were ever made, and of their pods."""
        self.stopped: set[str] = set()
        """Uids of pods that have saved before they end: their programs do not train on."""
        self.slots: int | None = None
        """Pods that nodes have room for; further ones are unschedulable."""
        self.announced: dict[str, Announcement] = {}
        """Announced ends of nodes, by name."""
        self.latest = self.now
        """The latest time that there was; the clock may be set back."""
        self.answered: dict[tuple[int, str], datetime] = {}
        """Attempts and notices in which replicas were moved away, with the deadline of the notice."""

    # Actions of the operator.

    def reconcile(self, crash_after: int | None = None) -> Plan | None:
        """Reconcile once as the leader, which crashes after `crash_after` requests if that is set."""
        try:
            return self._reconcile(crash_after)
        except Crash:
            self.restart(0)
            return None

    def lose_lease(self, after: int) -> None:
        """Reconcile as the leader, which loses its lease after so many requests and becomes the standby."""
        with suppress(Crash):
            self._reconcile(after)
        self.change_leader()

    def change_leader(self) -> None:
        self.leader.end_term()
        self.leader, self.standby = self.standby, self.leader
        self.leader.term_began_at = self.job.version if self.job else 0

    def switch_to_other_leader(self) -> None:
        """Let the other replica act as leader too, as with two installations that serve one API."""
        self.leader, self.standby = self.standby, self.leader
        self.leader.cached_job = self.job

    def _reconcile(self, requests_left: int | None) -> Plan | None:
        leader = self.leader
        job = leader.cached_job
        if job is None:
            return None
        observed = self.observe()
        before = leader.memory.status.deferred_record(str(job.version)) or decode(job.status)
        if self.broken:
            plan = plan_invalid(before, _BROKEN, job.workload.generation, self.now)
            assert not plan.actions
        else:
            plan = decide(job.workload, before, observed, self.now)
            self._check(job.workload, before, plan, observed)
        leader.confirmed_absent.clear()
        requests = 0

        def request() -> None:
            nonlocal requests
            if requests_left is not None and requests >= requests_left:
                raise Crash
            requests += 1

        if self._defers(job, before, plan, observed):
            leader.memory.status.deferred = Deferred(plan.record, str(job.version))
        elif encode(plan.record) != job.status:
            request()
            leader.memory.status.deferred = None
            if not self._write(job, plan.record):
                return None
            self._check_count(before, plan.record, observed)
        elif plan.actions and not self._confirm(job):
            return None
        for action in plan.actions:
            request()
            self._perform(action)
        return plan

    def observe(self) -> Observed:
        leader = self.leader
        leader.note_losses()
        nodes = {name: state for name, state in self.nodes.items() if name not in self.unconfirmed}
        unknown = {name for name, state in nodes.items() if not state.works}
        partly = {name for name, state in nodes.items() if state is NodeState.PARTLY_UNKNOWN}
        return Observed(
            pods=tuple(leader.cached_pods.values()),
            nodes_down=frozenset(unknown),
            nodes_partly_unknown=frozenset(unknown | partly),
            nodes_released=frozenset(name for name, state in nodes.items() if state.runs_nothing),
            nodes_unconfirmed=dict.fromkeys(sorted(self.unconfirmed), "no answer yet"),
            recent_losses=leader.losses.for_job("job"),
            children=tuple(self.children.values()),
            group=self.group,
            notices=find_notices(tuple(leader.cached_pods.values()), self._announcements()),
            confirmed_absent=frozenset(leader.confirmed_absent),
            recently_deleted=tuple(
                pod for name, pod in leader.recently_deleted.items() if name not in leader.cached_pods
            ),
        )

    def _announcements(self) -> dict[str, Announcement]:
        """Return the announced ends of nodes that have pods of the job, or that its Record names."""
        job = self.leader.cached_job
        stored = decode(job.status) if job else None
        nodes = {pod.node for pod in self.leader.cached_pods.values()}
        nodes |= {notice.node for notice in stored.notices} if stored else set()
        return {name: end for name, end in self.announced.items() if name in nodes}

    def sync(self) -> None:
        """Bring the caches of the leader up to date."""
        leader = self.leader
        leader.note_losses()  # including pods created since the last observation
        leader.cached_job = self.job
        previous, leader.cached_pods = leader.cached_pods, dict(self.pods)
        leader.recently_deleted |= {
            name: replace(pod, terminating=True) for name, pod in previous.items() if name not in self.pods
        }
        leader.recently_deleted = {
            name: pod for name, pod in leader.recently_deleted.items() if name not in self.pods
        }

    def restart(self, age: int) -> None:
        """Restart the leader: its state is lost, and its list of pods may be `age` changes old."""
        self.leader = Replica(self.job, self.clock)
        self.leader.cached_pods = dict(self.snapshots[max(0, len(self.snapshots) - 1 - age)])
        self.leader.term_began_at = self.job.version if self.job else 0

    # Actions of users and of the cluster.

    def edit(self, workload: Workload) -> None:
        if self.job:
            generation = self.job.workload.generation + 1
            self._store(replace(self.job, workload=replace(workload, generation=generation)))

    def lose_record(self) -> None:
        if self.job:
            self.record_lost = True
            self._store(replace(self.job, status=None))

    def delete_job(self) -> None:
        """Delete the job and, as the garbage collector does, its pods."""
        self.job = None
        for pod in list(self.pods.values()):
            self.terminate(pod)

    def announce(self, node: str, cause: NoticeCause, seconds: float | None) -> None:
        """Announce the end of a node; further announcements of the same end change its deadline."""
        deadline = None if seconds is None else self.now + timedelta(seconds=seconds)
        self.announced[node] = Announcement(node, f"uid-of-{node}", cause, "test", deadline)

    def update(self, pod: ObservedPod) -> None:
        self.version += 1
        self.pods[pod.name] = replace(pod, resource_version=str(self.version))
        self._take_snapshot()

    def terminate(self, pod: ObservedPod, grace: int | None = None) -> None:
        self.deleted.add((pod.role, pod.index, pod.uid))
        ends = self.now + timedelta(seconds=30 if grace is None else grace)
        self.update(replace(pod, terminating=True, deletion_time=ends))

    def remove(self, pod: ObservedPod) -> None:
        self.deleted.add((pod.role, pod.index, pod.uid))
        self.pods.pop(pod.name, None)
        self._take_snapshot()

    def fail(self, pod: ObservedPod, exit_code: int) -> None:
        if not pod.terminating:
            self.failed.add(pod.uid)
        self.update(replace(pod, phase="Failed", exit_code=exit_code))

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.now += timedelta(seconds=seconds)

    def save_checkpoint(self, *, answers: bool = True, at_end: bool = False) -> None:
        """Let a running pod acknowledge a checkpoint, of the order in force or of none.

        With `at_end` it is one that is being deleted, and has got SIGTERM.
        """
        stored = decode(self.job.status) if self.job else None
        order = stored.order_in_force if stored else None
        ending = [pod for pod in self.pods.values() if pod.terminating and pod.phase == "Running"]
        if order is not None and answers and not order.level and not at_end:
            self.stopped |= {
                pod.uid
                for pod in self.live_pods("Running")
                if pod.index in IndexSet.decode(order.stop.get(pod.role, ""))
            }
        for pod in (ending if at_end else self.live_pods("Running"))[:1]:
            self.steps += 1
            epoch = order.epoch if order and answers else 0
            digest = f"sha256:{self.steps:064}"
            saved = SavedCheckpoint(self.steps, digest, self.now, seconds=1.0, epoch=epoch)
            self.update(replace(pod, saved=saved))

    def finish_backups(self, *, failed: bool = False) -> None:
        """Let the node agent push the images of running pods whose processes are saved, or fail to."""
        pods = {pod.name: pod for pod in self.live_pods("Running")}
        for name, child in self.backups():
            pod = pods.get(self.backed_up[name])
            if child.status.phase or pod is None:
                continue
            self.steps += 1
            digest = f"sha256:{self.steps:064}"
            status = CheckpointBackupStatus(
                phase="Failed" if failed else "Completed",
                last_checkpoint_time=self.now,
                completion_time=self.now,
                built_images=[] if failed else [BuiltImage("main", f"train:{name}", pushed=True)],
                source_pod_uid=pod.uid,
                digests={} if failed else {"main": digest},
            )
            self.children[CheckpointBackup, name] = replace(child, status=status)

    def backups(self) -> list[tuple[str, CheckpointBackup]]:
        """Return the CheckpointBackups that exist, by name."""
        children = list(self.children.items())
        return [(name, child) for (_, name), child in children if isinstance(child, CheckpointBackup)]

    def live_pods(self, *phases: str) -> list[ObservedPod]:
        """The pods in these phases on working nodes that are not terminating."""
        return [
            pod
            for pod in self.pods.values()
            if pod.phase in phases and not pod.terminating and pod.node and self.nodes[pod.node].works
        ]

    def tick(self) -> bool:
        """Start pending pods and remove terminating ones on working nodes; returns True if there were any."""
        self._place_pods()
        pods = [pod for pod in self.pods.values() if self._is_attended(pod)]
        for pod in pods:
            if pod.terminating:
                self.remove(pod)
            elif pod.phase == "Pending":
                self.update(replace(pod, phase="Running"))
        return any(pod.terminating or pod.phase == "Pending" for pod in pods)

    def _is_attended(self, pod: ObservedPod) -> bool:
        """Return True if a kubelet, or the API server alone, does what is due for the pod."""
        return self.nodes[pod.node].works if pod.node else pod.terminating

    def _place_pods(self) -> None:
        """Assign nodes to pods, as far as there is room."""
        for pod in list(self.pods.values()):
            used = sum(bool(other.node) and not other.ended for other in self.pods.values())
            if not pod.node and not pod.terminating and (self.slots is None or used < self.slots):
                self.update(replace(pod, node=self._next_node(), waiting_reason=""))

    def _next_node(self) -> str:
        self.placed_count += 1
        return NODES[self.placed_count % len(NODES)]

    def settle(self, most: int = 100) -> Plan | None:
        """Reconcile with current caches and advancing time until nothing changes; returns the last plan."""
        self.in_burst = False
        for _ in range(most):
            self.sync()
            before = (self.job, dict(self.pods), dict(self.children))
            plan = self.reconcile()
            busy = self.tick()
            if self.job is None:
                if not self.pods:
                    return None
                continue
            if plan is not None and plan.requeue_at and plan.requeue_at - self.now < timedelta(hours=1):
                self.advance(max((plan.requeue_at - self.now).total_seconds(), 0.0))
                continue
            if (
                not busy
                and not self.leader.confirmed_absent
                and before == (self.job, self.pods, self.children)
            ):
                return plan
        raise AssertionError(f"not settled after {most} reconciles: {self.job} {self.pods}")

    # Internals.

    def _defers(self, job: Job, before: Record | None, plan: Plan, observed: Observed) -> bool:
        memory = self.leader.memory.status
        wanted = bool(plan.actions or memory.deferred)
        if not self.in_burst or self.prunes_record or not wanted or memory.record_first:
            return False
        current = memory.deferred is not None or job.version >= self.leader.term_began_at
        return current and is_recoverable_from_pods(job.workload, before, plan, observed)

    def _confirm(self, job: Job) -> bool:
        """Read the job again before acting without a write, unless the cache is of this term."""
        if job.version < self.leader.term_began_at and job is not self.job:
            self.leader.cached_job = self.job
            return False
        return True

    def _write(self, job: Job, record: Record) -> bool:
        assert decode(encode(record)) == record, "a Record is not equal after encoding and decoding"
        if self.job is None or self.job.version != job.version:
            self.leader.memory.status.record_first = True
            return False
        if (stored := decode(self.job.status)) is not None:
            invariants.check_no_regression(stored, record)
            self._check_answers(stored, record)
            self._check_moves(stored, record)
            self._check_scale_in(stored, record)
        self.writes += 1
        self.record_lost = self.record_lost or self.prunes_record
        self._store(replace(self.job, status=None if self.prunes_record else encode(record)))
        self.leader.cached_job = self.job
        return decode(self.job.status) == record

    def _store(self, job: Job) -> None:
        assert self.job
        self.job = replace(job, version=self.job.version + 1)

    def _perform(self, action: Action) -> None:
        if isinstance(action, CreatePod):
            self._create(action)
        elif isinstance(action, DeletePod):
            existing = self.pods.get(action.name)
            if existing and existing.uid == action.uid:
                if action.resource_version and action.resource_version != existing.resource_version:
                    self.leader.cached_pods[existing.name] = existing
                elif action.grace_period_seconds == 0:
                    assert existing.node, "a pod without a node was force-deleted"
                    assert self.nodes[existing.node].runs_nothing, (
                        "a pod was force-deleted while its node may still run it"
                    )
                    self.remove(existing)
                    self.leader.cached_pods.pop(existing.name, None)
                elif not existing.terminating:
                    self.terminate(existing, action.grace_period_seconds)
                    self.leader.cached_pods[existing.name] = self.pods[existing.name]
        elif isinstance(action, ConfirmPod):
            if self._pod_name(action) not in self.pods:
                self.leader.confirmed_absent.add((action.role, action.index))
        elif isinstance(action, Apply):
            child = action.child
            if child.kind is CheckpointBackup:
                spec = cast("dict[str, dict[str, str]]", child.body["spec"])
                # Without its Record a job may use the number of an order again in the same second.
                assert self.record_lost or child.name not in self.backed_up, (
                    "the processes were saved twice for one order"
                )
                self.backed_up[child.name] = spec["podRef"]["name"]
            self.children[child.kind, child.name] = existing_child(child)
            if child.kind is GROUP.kind:
                self.group = ObservedGroup(scheduled=True)
        elif isinstance(action, Remove):
            self.children.pop((action.kind, action.name), None)
            if action.kind is GROUP.kind:
                self.group = None
        elif isinstance(action, DeleteJob):
            self.delete_job()

    def _create(self, action: CreatePod) -> None:
        if self.job is None:
            return  # the garbage collector deletes the pod of a missing owner
        stored = decode(self.job.status)
        assert stored is None or not stored.finished_at, "a pod was created for a finished job"
        name = self._pod_name(action)
        existing = self.pods.get(name)
        if existing is None:
            self.created_count += 1
            existing = ObservedPod(
                name=name,
                uid=f"uid-{self.created_count}",
                role=action.role,
                index=action.index,
                attempt=action.attempt,
                replacement=action.replacement,
                created=self.now,
                waiting_reason="Unschedulable",
            )
            self.update(existing)
            self._place_pods()
            self._check_replacement_delay(action)
        self.leader.cached_pods[name] = self.pods[name]

    def _pod_name(self, action: CreatePod | ConfirmPod) -> str:
        """Return the name of a pod; those of a replica differ where they may overlap."""
        name = f"job-{action.role}-{action.index}"
        workload = self.job.workload if self.job else None
        if workload is None or not workload.allows_surge(workload.roles[action.role]):
            return name
        return f"{name}-{action.attempt}-{action.replacement}"

    def _check_replacement_delay(self, action: CreatePod) -> None:
        """Check that repeated replacements of one replica are delayed, except the first."""
        times = self.leader.created_at.setdefault((action.role, action.index), [])
        times.append(self.clock.monotonic())
        if len(times) > 2 and times[-1] - times[-3] < IN_A_ROW_SECONDS:
            assert times[-1] - times[-2] >= LOSS_DELAY_SECONDS, "pods are replaced without a delay"

    def _take_snapshot(self) -> None:
        self.snapshots = [*self.snapshots[-5:], dict(self.pods)]

    def _check(self, workload: Workload, before: Record | None, plan: Plan, observed: Observed) -> None:
        invariants.check(workload, before, observed, self.now, plan)
        creates = {(a.role, a.index) for a in plan.actions if isinstance(a, CreatePod)}
        began = sync_record(workload, before, observed, self.now).attempt_started_at
        if workload.gang and creates and began is None:
            self._check_gang(workload, plan.record, observed, creates)

    def _check_count(self, before: Record | None, after: Record, observed: Observed) -> None:
        """Check that every recorded restart belongs to a failure that was not counted before.

        Not checked once a Record was lost: restarts are then estimated from the labels of pods.
        """
        if self.record_lost or before is None or any(pod.container_restarts for pod in observed.pods):
            return
        # A failed pod that is being deleted counts as a disruption.
        failed = {pod.uid for pod in observed.pods if pod.ended and not pod.terminating}
        fresh = (failed & self.failed) - self.counted
        used = after.restarts - before.restarts
        assert used <= len(fresh), "a failure was counted twice"
        if used:
            self.counted |= fresh

    def _check_answers(self, stored: Record, record: Record) -> None:
        """Check that replicas are moved away once for each notice, until it is gone and past its deadline.

        Those that save first are checked by `_check_moves`.
        """
        known = {notice.id: notice for notice in stored.notices}
        self.latest = max(self.latest, self.now)
        for notice in record.notices:
            answer, before = (record.attempt, notice.id), known.get(notice.id)
            if notice.response not in (NoticeResponse.SCALE_IN, NoticeResponse.SIGNAL_AND_MOVE):
                # A checkpoint was missed, and the clock may have been set back. One that waits until the job
                # can save has not been answered yet: what was answered is an earlier one of the same node.
                if answer in self.answered and notice.step:
                    self.answered[answer] = notice.deadline
                continue
            if before is None or (before.response, before.replicas) != (notice.response, notice.replicas):
                last = self.answered.get(answer)
                assert last is None or self.record_lost or last <= self.latest, "a notice was answered twice"
                for name, indexes in notice.replicas.items():
                    foreign = IndexSet.decode(indexes) - stored.role(name).wanted
                    is_resized = stored.role(name).declared != record.role(name).declared
                    assert not foreign or is_resized, "a notice moved a replica that its role does not have"
            self.answered[answer] = notice.deadline

    def _check_moves(self, stored: Record, record: Record) -> None:
        """Check that pods are moved at most once for each notice, and only after its checkpoint is saved.

        Orders have growing numbers, and none is taken back.
        """
        assert record.answered_epoch >= stored.answered_epoch, "an answered order was forgotten"
        if stored.order is not None:
            assert record.order is not None, "an order was forgotten"
            assert record.order.epoch >= stored.order.epoch, "the number of an order decreased"
        steps = {notice.id: notice.step for notice in stored.notices}
        for notice in record.notices:
            if notice.step != SaveStep.SAVED or steps.get(notice.id) == SaveStep.SAVED:
                continue
            assert record.answered_epoch >= notice.epoch, "pods were moved before the checkpoint"
            move = (notice.epoch, notice.id)
            assert move not in self.moved or self.record_lost, "pods were moved twice for one notice"
            self.moved.add(move)

    def _check_scale_in(self, stored: Record, record: Record) -> None:
        """Check that there is one order before a new size, that the replicas which were asked to stop stay
        the same, and that each of them has left or is replaced in the end."""
        order = record.order
        if order is not None and order.id.startswith("resize/") and not self.record_lost:
            epoch = self.resize_orders.setdefault(order.id, order.epoch)
            assert epoch == order.epoch, "a checkpoint was ordered twice for one size"
        planned = stored.scale_in
        if planned is None or record.attempt != stored.attempt or record.finished_at:
            return
        if record.scale_in is not None:
            assert record.scale_in.replicas == planned.replicas, "other replicas were chosen"
            return
        for name in planned.replicas:
            last = record.role(name)
            for index in stored.asked_to_leave(name) & last.members:
                grown = last.replacements.get(index, 0) > stored.replacement(name, index)
                assert grown, f"{name}-{index} was asked to stop, and stays"

    def _check_gang(
        self, workload: Workload, record: Record, observed: Observed, creates: Iterable[tuple[str, int]]
    ) -> None:
        created_replicas = set(creates)
        for name in workload.roles:
            for index in record.role(name).members:
                place = (name, index)
                existing = (
                    place in created_replicas
                    or observed.by_replica.get(place)
                    or index in record.role(name).succeeded_indexes
                )
                assert existing, f"the pods of a gang are created together, but {place} is missing"
