"""Drives one TrainingJob and its scalers through the real dialect and decisions, without an API server.

Every status is validated by its CRD, and every plan by the invariants of plans. The operator can be killed
before any write and any action; what it had not written is then lost. A status is written only if nobody
else has written the object since it was read.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.base import StatusChange, StatusInput
from argosy.dialects.et.api import training_job_api
from argosy.dialects.et.scaler import ScalerReconciler
from argosy.dialects.et.settings import EtSettings
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.scalers import ScaleIn, ScaleInCrd, ScaleOut, ScaleOutCrd
from argosy.kinds.trainingjob import TrainingJob, TrainingJobCrd, TrainingJobStatus
from argosy.plan.actions import (
    EmitEvent,
    Exec,
    ExecResult,
    ExecStatus,
    Patch,
)
from argosy.plan.contract import Decision, Inputs
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.decide import decide, plan_invalid
from argosy.workload.model import Json, Problems, Workload
from argosy.workload.notice_response import find_notices
from argosy.workload.observed import Observed, ObservedGroup, ObservedPod
from argosy.workload.plan import Plan
from argosy.workload.pods import with_planned_pods
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.scale_request import ScaleRequest
from tests.support import invariants, trainingjobs
from tests.support.et_cluster import EtCluster
from tests.support.et_executor import Answer, EtExecutor, Memory
from tests.support.workloads import NOW

J = "elastic-training"
LAUNCHER = f"{J}-launcher"

Scaler = ScaleIn | ScaleOut


def worker(index: int) -> str:
    return f"{J}-worker-{index}"


def workers(*indexes: int) -> list[str]:
    return [worker(index) for index in indexes]


def done(call: Exec, exit_code: int = 0, stdout: bytes = b"") -> ExecResult:
    return ExecResult(call.key, ExecStatus.DONE, exit_code, stdout)


class OperatorKilledError(Exception):
    """The operator was killed before a step."""


class Planned(Struct, frozen=True):
    """What one reconcile of the job has decided and not yet written."""

    version: int
    workload: Workload | None
    observed: Observed
    plan: Plan


class EtSimulator:
    """One job, its scalers and its pods, with caches that are always up to date."""

    def __init__(
        self,
        changes: dict[str, object] | None = None,
        answer: Answer = done,
        settings: EtSettings = EtSettings(),
        annotations: dict[str, str] | None = None,
        name: str = J,
    ) -> None:
        self.api = training_job_api(settings)
        meta = ObjectMeta(
            name=name,
            namespace="default",
            uid="job-uid",
            generation=1,
            creation_timestamp=NOW,
            annotations=annotations or {},
        )
        spec = trainingjobs.job(name, changes)["spec"]
        assert isinstance(spec, dict)
        self.job = TrainingJob(meta, spec)
        self.version = 1
        """The resourceVersion of the job."""
        self.cluster = EtCluster()
        self.executor = EtExecutor(self.api, self.cluster, answer, self._step)
        self.scalers: dict[str, Scaler] = {}
        self.events: list[EmitEvent] = []
        self.scaler_events: list[EmitEvent] = []
        self.phases: list[str] = []
        """Phases of the job, as somebody who watches it sees them."""
        self.scaler_phases: dict[str, list[str]] = {}
        """The column PHASE of each scaler, as somebody who watches it sees it."""
        self.host_lists: list[list[str]] = []
        """Host lists of the launcher, in the order of their changes."""
        self.collected = False
        """Whether the job was deleted, with everything that it owns."""
        self.saves = False
        """Whether the training saves a checkpoint whenever it is ordered to."""
        self.orders: list[SaveOrder] = []
        """Orders to save a checkpoint, as they were given."""
        self.steps: list[str] = []
        """Writes and actions of the operator."""
        self.stop_at: int | None = None
        """The number of the step before which the operator is killed, counted from 1."""

    # What users do.

    def edit(self, changes: dict[str, object]) -> None:
        """Change fields of the spec, as `trainingjobs.job` names them."""
        manifest: dict[str, object] = {"spec": msgspec.json.decode(msgspec.json.encode(self.job.spec))}
        spec = trainingjobs.change(manifest, changes)["spec"]
        assert isinstance(spec, dict)
        self._store(spec=spec, generation=self.job.metadata.generation + 1)

    def annotate(self, key: str, value: str | None) -> None:
        kept = {name: text for name, text in self.job.metadata.annotations.items() if name != key}
        self._store(annotations=kept if value is None else {**kept, key: value})

    def delete_job(self) -> None:
        self._store(deletion_timestamp=self.now)

    def collect_garbage(self) -> None:
        """Delete the job and everything that it owns."""
        self.collected = True
        uid = self.job.metadata.uid
        owned = {
            name
            for name, scaler in self.scalers.items()
            if any(owner.uid == uid for owner in scaler.metadata.owner_references)
        }
        self.scalers = {name: scaler for name, scaler in self.scalers.items() if name not in owned}
        self.cluster.pods.clear()
        self.cluster.children.clear()

    def scale_out(self, name: str = "out", **spec: object) -> None:
        """Create the ScaleOut of the README (two workers), with these fields of its spec."""
        self._create_scaler(ScaleOut, "scale_out.yaml", name, spec)

    def scale_in(self, name: str = "in", **spec: object) -> None:
        """Create the ScaleIn of the README (one worker), with these fields of its spec."""
        self._create_scaler(ScaleIn, "scale_in_count.yaml", name, spec)

    def _create_scaler(self, kind: type[Scaler], manifest: str, name: str, spec: dict[str, object]) -> None:
        given = trainingjobs.example(manifest)["spec"]
        assert isinstance(given, dict)
        meta = ObjectMeta(
            name=name, namespace="default", uid=f"uid-{name}", generation=1, creation_timestamp=self.now
        )
        self.scalers[name] = kind(meta, {**given, **spec})

    def _store(self, spec: dict[str, object] | None = None, **metadata: object) -> None:
        meta = replace(self.job.metadata, **metadata)
        self.job = replace(self.job, metadata=meta, spec=spec or self.job.spec)
        self.version += 1

    # What tests ask for.

    @property
    def now(self) -> datetime:
        return self.cluster.now

    @property
    def pods(self) -> dict[str, ObservedPod]:
        return self.cluster.pods

    @property
    def status(self) -> TrainingJobStatus:
        return self.job.status

    @property
    def record(self) -> Record:
        record = decode(self.job.status.argosy)
        assert record is not None
        return record

    @property
    def hosts(self) -> list[str]:
        """The host list, by index."""
        return [self._worker(index) for index in self.record.role("worker").listed]

    def conditions(self, scaler: str = "") -> list[str]:
        """Return the types of the conditions that are True, of the job or of a scaler, in their order."""
        status = self.scalers[scaler].status if scaler else self.status
        return [item.type for item in status.conditions if item.status == "True"]

    def condition(self, kind: str, scaler: str = "") -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        status = self.scalers[scaler].status if scaler else self.status
        [found] = [item for item in status.conditions if item.type == kind]
        return found.status, found.reason, found.message

    def reasons(self, kind: str = "") -> list[str]:
        """Return the reasons of the job's events, or of its Warnings, in their order."""
        return [event.reason for event in self.events if kind in ("", event.type)]

    def event_messages(self, reason: str) -> list[str]:
        return [event.message for event in self.events if event.reason == reason]

    def called(self, prefix: str) -> list[Exec]:
        """Return the calls into pods whose key has this prefix."""
        return [call for call in self.executor.calls if call.key.startswith(prefix)]

    def _worker(self, index: int) -> str:
        return f"{self.job.metadata.name}-worker-{index}"

    # What the operator does.

    def run(self, rounds: int = 10, seconds: float = 1.0, *, scalers: bool = True) -> None:
        """Reconcile the job and its scalers, and let time pass, several times."""
        for _ in range(rounds):
            try:
                self.reconcile()
                for name in list(self.scalers) if scalers else ():
                    self.reconcile_scaler(name)
            except OperatorKilledError:
                self.executor.memory = Memory()
            self.cluster.tick(seconds)
            if self.saves:
                self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Let a running worker acknowledge a checkpoint for the order in force, if there is one."""
        stored = decode(self.job.status.argosy)
        order = stored.order_in_force if stored else None
        workers = (self.pods[name] for name in self.cluster.workers())
        pod = next((pod for pod in workers if pod.phase == "Running"), None)
        if order is not None and pod is not None:
            digest = f"sha256:{order.epoch:064}"
            saved = SavedCheckpoint(order.epoch, digest, self.now, seconds=1.0, epoch=order.epoch)
            self.cluster.change(pod.name, saved=saved)

    def reconcile(self) -> None:
        if not (self.collected or self.executor.job_deleted):
            self.commit(self.plan())

    def plan(self) -> Planned:
        """Decide about the job, and write nothing."""
        workload, before = self.api.dialect.to_workload(self.job), self._record()
        observed = Observed(
            pods=tuple(self.pods.values()),
            nodes_down=self.cluster.nodes_down,
            notices=find_notices(tuple(self.pods.values()), self.cluster.announced),
            children=tuple(stored.obj for stored in self.cluster.children.values()),
            group=ObservedGroup() if self.cluster.names("PodGroup") else None,
            exec_results=dict(self.executor.memory.results),
            confirmed_absent=frozenset(self.executor.memory.absent),
            scale_requests=self._requests(workload) if isinstance(workload, Workload) else (),
            failed_actions=tuple(self.executor.memory.failures.values()),
        )
        if isinstance(workload, Problems):
            plan = plan_invalid(before, workload, self.job.metadata.generation, self.now)
            return Planned(self.version, None, observed, plan)
        plan = decide(workload, before, observed, self.now)
        invariants.check(workload, before, observed, self.now, plan)
        return Planned(self.version, workload, observed, plan)

    def _record(self) -> Record | None:
        """Return the stored Record, or the one that the status of another operator amounts to."""
        stored = decode(self.job.status.argosy)
        return stored or (self.api.adoption.record(self.job) if self.api.adoption else None)

    def _requests(self, workload: Workload) -> tuple[ScaleRequest, ...]:
        found = (
            kind.to_request(scaler, workload)
            for kind in self.api.requests
            for scaler in self.scalers.values()
            if isinstance(scaler, kind.kind) and kind.job_name(scaler) == workload.name
        )
        return tuple(request for request in found if request is not None)

    def commit(self, planned: Planned) -> bool:
        """Write the status and execute the plan; False if the job was written since it was read."""
        if planned.version != self.version:
            return False
        if (patch := self.api.spec_patch(self.job)) is not None:
            self._patch_job(patch)
            return True
        self._write(planned)
        timed = self.api.timed_patch(self.job)
        if timed is not None and timed.at <= self.now:
            self._patch_job(timed.patch)
            return True
        if planned.workload is not None:
            results = self.executor.execute(planned.workload, planned.plan.actions)
            self.events += self.api.action_events(self.job, results)
        return True

    def _patch_job(self, patch: Json) -> None:
        self._step("patch of the job")
        metadata = patch["metadata"]
        assert isinstance(metadata, dict)
        for key, value in metadata["annotations"].items():
            self.annotate(key, value)

    def _write(self, planned: Planned) -> None:
        plan, workload = planned.plan, planned.workload
        shown = with_planned_pods(planned.observed, plan.actions)
        status = self.api.dialect.to_status(self.job, StatusInput(workload, plan.record, shown))
        if status == self.job.status:
            return
        invariants.check_status(TrainingJobCrd, status)
        assert isinstance(status, TrainingJobStatus)
        self._step(f"status {status.phase}")
        after = replace(self.job, status=status)
        self.events += self.api.status_events(StatusChange(self.job, after, plan, workload))
        self.job = after
        self.version += 1
        order = plan.record.order
        if order is not None and order.epoch not in [given.epoch for given in self.orders]:
            self.orders.append(order)
        if not self.phases or self.phases[-1] != status.phase:
            self.phases.append(status.phase)
        if LAUNCHER in self.pods and (not self.host_lists or self.host_lists[-1] != self.hosts):
            self.host_lists.append(self.hosts)

    def reconcile_scaler(self, name: str) -> None:
        scaler = self.scalers[name]
        decision = self._decide_scaler(scaler)
        crd = ScaleInCrd if isinstance(scaler, ScaleIn) else ScaleOutCrd
        if decision.status != scaler.status:
            invariants.check_status(crd, decision.status)
            self._step(f"status of {name}")
            self.scaler_events += decision.events
            self.scalers[name] = replace(scaler, status=decision.status)
            shown = self.scaler_phases.setdefault(name, [])
            last = self.scalers[name].status.conditions[-1].type
            if not shown or shown[-1] != last:
                shown.append(last)
        for action in decision.actions:
            assert isinstance(action, Patch)
            self._step(f"owner of {name}")
            patched = action.patch["metadata"]
            assert isinstance(patched, Mapping)
            owners = msgspec.convert(patched["ownerReferences"], list[OwnerReference])
            meta = replace(self.scalers[name].metadata, owner_references=owners)
            self.scalers[name] = replace(self.scalers[name], metadata=meta)

    def _decide_scaler(self, scaler: Scaler) -> Decision:
        reconciler: ScalerReconciler[ScaleIn] = ScalerReconciler()
        needs = tuple(reconciler.needs(scaler, None))  # type: ignore[arg-type]  # one for both kinds
        jobs = () if self.collected else (self.job,)
        found = {need: jobs if need.name == self.job.metadata.name else () for need in needs}
        return reconciler.decide(scaler, None, Inputs(found=found), self.now)  # type: ignore[arg-type]

    def _step(self, what: str) -> None:
        self.steps.append(what)
        if len(self.steps) == self.stop_at:
            raise OperatorKilledError(what)


def running_job(
    changes: dict[str, object] | None = None,
    answer: Answer = done,
    settings: EtSettings = EtSettings(),
    annotations: dict[str, str] | None = None,
) -> EtSimulator:
    """Return a simulator whose job runs with all its workers listed."""
    job = EtSimulator(changes, answer, settings, annotations)
    job.run(8)
    assert job.status.phase == "Running", job.status
    return job
