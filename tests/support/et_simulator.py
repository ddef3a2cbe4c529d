"""Drives one TrainingJob and its scalers through the real dialect and decisions, without an API server.

Pods start at once unless a test holds them, and calls into pods succeed unless a test answers them. Every
object is written through its CRD's validation and pruning, as the API server does it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import yaml
from msgspec.structs import replace

from argosy.dialects.base import StatusChange, StatusInput
from argosy.dialects.et.api import training_job_api
from argosy.dialects.et.dialect import EtSettings
from argosy.dialects.et.scaler import ScalerReconciler
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.kinds.trainingjob import TrainingJob, TrainingJobStatus
from argosy.plan.actions import (
    ActionResult,
    Apply,
    EmitEvent,
    Exec,
    ExecResult,
    ExecStatus,
    Patch,
    Remove,
)
from argosy.plan.children import Child, KubernetesObject
from argosy.plan.contract import Inputs
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.decide import decide, plan_invalid
from argosy.workload.model import Problems, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import ConfirmPod, CreatePod, DeleteJob, DeletePod, Plan
from argosy.workload.pods import with_planned_pods
from argosy.workload.record import Record, decode
from argosy.workload.scale_request import ScaleRequest
from tests.support.workloads import NOW, existing_child

EXAMPLES = Path(__file__).parents[2] / "deploy" / "et" / "examples"
Answer = Callable[[Exec], ExecResult | None]
Scaler = ScaleIn | ScaleOut
Rendered = dict[str, object]


def example(name: str) -> dict[str, object]:
    """Return a sample of the README."""
    loaded: dict[str, object] = yaml.safe_load((EXAMPLES / name).read_text())
    return loaded


def done(call: Exec, exit_code: int = 0, stdout: bytes = b"") -> ExecResult:
    return ExecResult(call.key, ExecStatus.DONE, exit_code, stdout)


class EtSimulator:
    """One job, its scalers and its pods, with caches that are always up to date."""

    def __init__(
        self,
        spec: dict[str, object] | None = None,
        answer: Answer = done,
        settings: EtSettings = EtSettings(),
        annotations: dict[str, str] | None = None,
        name: str = "elastic-training",
    ) -> None:
        self.api = training_job_api(settings)
        self.now: datetime = NOW
        meta = ObjectMeta(
            name=name,
            namespace="default",
            uid="job-uid",
            generation=1,
            creation_timestamp=NOW,
            annotations=annotations or {},
        )
        written = spec if spec is not None else example("training_job.yaml")["spec"]
        assert isinstance(written, dict)
        self.job = TrainingJob(meta, written)
        self.answer = answer
        self.scalers: dict[str, Scaler] = {}
        self.pods: dict[str, ObservedPod] = {}
        self.rendered: dict[str, Rendered] = {}
        self.children: dict[tuple[str, str], KubernetesObject] = {}
        self.bodies: dict[tuple[str, str], Child] = {}
        self.results: dict[str, ExecResult] = {}
        self.failures: tuple[ActionResult, ...] = ()
        self.absent: set[tuple[str, int]] = set()
        self.pending: set[str] = set()
        """Names of pods that do not start."""
        self.rejects: Callable[[str], ActionResult | None] = lambda name: None
        """Returns why the creation of a pod is rejected."""
        self.calls: list[Exec] = []
        self.events: list[EmitEvent] = []
        self.phases: list[str] = []
        self.created: list[str] = []
        self.deleted = False

    @property
    def status(self) -> TrainingJobStatus:
        return self.job.status

    @property
    def record(self) -> Record:
        record = decode(self.job.status.argosy)
        assert record is not None
        return record

    def condition_types(self) -> list[str]:
        return [item.type for item in self.status.conditions if item.status == "True"]

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    def scale(self, manifest: dict[str, object], name: str, **spec: object) -> None:
        """Create a scaler."""
        kind = ScaleIn if manifest["kind"] == "ScaleIn" else ScaleOut
        given = manifest["spec"]
        assert isinstance(given, dict)
        meta = ObjectMeta(
            name=name, namespace="default", uid=f"uid-{name}", generation=1, creation_timestamp=self.now
        )
        self.scalers[name] = kind(meta, {**given, **spec})

    def edit(self, **spec: object) -> None:
        meta = replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        self.job = replace(self.job, metadata=meta, spec={**self.job.spec, **spec})

    def run(self, rounds: int = 10, seconds: float = 1.0) -> None:
        for _ in range(rounds):
            self.reconcile()
            for name in list(self.scalers):
                self._reconcile_scaler(name)
            self.now += timedelta(seconds=seconds)
            for name, pod in self.pods.items():
                if pod.phase == "Pending" and name not in self.pending:
                    self.pods[name] = replace(pod, phase="Running")

    def reconcile(self) -> None:
        if self.deleted:
            return
        workload = self.api.dialect.to_workload(self.job)
        before = decode(self.job.status.argosy)
        requests: tuple[ScaleRequest, ...] = ()
        if isinstance(workload, Workload):
            found = (
                kind.to_request(scaler, workload)
                for kind in self.api.requests
                for scaler in self.scalers.values()
                if isinstance(scaler, kind.kind) and kind.job_name(scaler) == self.job.metadata.name
            )
            requests = tuple(request for request in found if request is not None)
        observed = Observed(
            pods=tuple(self.pods.values()),
            children=tuple(self.children.values()),
            exec_results=dict(self.results),
            confirmed_absent=frozenset(self.absent),
            scale_requests=requests,
            failed_actions=self.failures,
        )
        if isinstance(workload, Problems):
            plan = plan_invalid(before, workload, self.job.metadata.generation, self.now)
        else:
            plan = decide(workload, before, observed, self.now)
        self._write(workload if isinstance(workload, Workload) else None, plan, observed)
        if isinstance(workload, Workload):
            self._execute(workload, plan)

    def _write(self, workload: Workload | None, plan: Plan, observed: Observed) -> None:
        shown = with_planned_pods(observed, plan.actions)
        status = self.api.dialect.to_status(self.job, StatusInput(workload, plan.record, shown))
        encoded = msgspec.json.decode(msgspec.json.encode(status))
        after = replace(self.job, status=msgspec.convert(encoded, type(self.job.status)))
        change = StatusChange(before=self.job, after=after, plan=plan, workload=workload)
        if after.status != self.job.status:
            self.events += self.api.status_events(change)
        self.job = after
        if not self.phases or self.phases[-1] != after.status.phase:
            self.phases.append(after.status.phase)

    def _execute(self, workload: Workload, plan: Plan) -> None:
        wanted = {action.key for action in plan.actions if isinstance(action, Exec)}
        self.results = {key: result for key, result in self.results.items() if key in wanted}
        self.absent, failures = set(), []
        for action in plan.actions:
            match action:
                case CreatePod():
                    if failure := self._create(workload, action):
                        failures.append(failure)
                case DeletePod():
                    self.pods = {name: pod for name, pod in self.pods.items() if pod.uid != action.uid}
                case ConfirmPod():
                    self.absent.add((action.role, action.index))
                case Apply():
                    key = (action.child.kind.resource.kind, action.child.name)
                    self.children[key] = existing_child(action.child)
                    self.bodies[key] = action.child
                case Remove():
                    self.children.pop((action.kind.resource.kind, action.name), None)
                case Exec():
                    self._call(action)
                case DeleteJob():
                    self.deleted = True
        self.events += self.api.action_events(self.job, failures)
        self.failures = tuple(failures)

    def _create(self, workload: Workload, action: CreatePod) -> ActionResult | None:
        name = workload.hostname(action.role, action.index)
        if failure := self.rejects(name):
            return failure
        assert name not in self.pods, f"{name} exists"
        renderer = PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid)
        self.rendered[name] = renderer.for_job(workload, self.api.inject).render(action, name)
        self.created.append(name)
        self.pods[name] = ObservedPod(
            name,
            f"uid-{len(self.created)}",
            action.role,
            action.index,
            action.attempt,
            action.replacement,
            created=self.now,
            node="node-1",
        )
        return None

    def _call(self, action: Exec) -> None:
        if action.key in self.results:
            return
        self.calls.append(action)
        if (result := self.answer(action)) is not None:
            self.results[action.key] = result

    def _reconcile_scaler(self, name: str) -> None:
        scaler = self.scalers[name]
        reconciler: ScalerReconciler[ScaleIn] = ScalerReconciler()
        needs = tuple(reconciler.needs(scaler, None))  # type: ignore[arg-type]  # one for both kinds
        found = {need: (self.job,) if need.name == self.job.metadata.name else () for need in needs}
        decision = reconciler.decide(scaler, None, Inputs(found=found), self.now)  # type: ignore[arg-type]
        self.events += decision.events
        self.scalers[name] = replace(scaler, status=decision.status)
        for action in decision.actions:
            assert isinstance(action, Patch)
            meta = self.scalers[name].metadata
            patched = action.patch["metadata"]
            assert isinstance(patched, dict)
            owners = msgspec.convert(patched["ownerReferences"], list[OwnerReference])
            self.scalers[name] = replace(self.scalers[name], metadata=replace(meta, owner_references=owners))

    def fail(self, name: str, exit_code: int = 1, reason: str = "") -> None:
        self.pods[name] = replace(
            self.pods[name],
            phase="Failed",
            exit_code=None if reason else exit_code,
            first_exit_code=None if reason else exit_code,
            reason=reason,
            disrupted=bool(reason),
        )

    def end_launcher(self, exit_code: int = 0, reason: str = "") -> None:
        name = f"{self.job.metadata.name}-launcher"
        if exit_code or reason:
            self.fail(name, exit_code, reason)
        else:
            self.pods[name] = replace(self.pods[name], phase="Succeeded", exit_code=0, first_exit_code=0)
