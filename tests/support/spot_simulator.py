"""Drives one SpotInstanceJob through the real reconciler, without an API server.

The simulator plays the Job controller, the agents, the machines, the kubelets and the registry. The operator
can be killed before any of its writes; what it had not written is then lost. After every action it is checked
that the name of what was created had been recorded, that no two incarnations of a replica can run at once,
and that no replica has two VMs that hold it.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import cast

import msgspec
from msgspec.structs import replace

from argosy.dialects.spot import pods as spot_pods
from argosy.dialects.spot.losses import NOTICE_STATES, STOPPED_STATES
from argosy.dialects.spot.reconciler import SpotInstanceJobReconciler
from argosy.dialects.spot.record import SpotJobRecord
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Job, SecretMetadata
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot import INSTANCE_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import (
    Action,
    ActionResult,
    ActionStatus,
    Apply,
    Call,
    CallResult,
    Check,
    Patch,
    Remove,
)
from argosy.plan.children import KubernetesObject, Owner, child_body
from argosy.plan.contract import Decision, Inputs, Matching, Need, Ref, View, ViewState
from argosy.plan.drivers import SecretContent
from argosy.plan.record import decode_record
from argosy.reconcile.runner import DecisionObserver
from tests.support.spot_cluster import NAME, SpotCluster
from tests.support.spot_jobs import Json, spot_job


class KilledError(Exception):
    """The operator was killed before a write."""


class SpotSimulator(SpotCluster):
    """A cluster with one SpotInstanceJob and its operator."""

    def __init__(
        self,
        changes: Json | None = None,
        *,
        later_shape: bool = False,
        settings: SpotSettings = SpotSettings(),
        template: bool = True,
        vm_changes: Json | None = None,
    ) -> None:
        body = spot_job(changes=changes)
        if later_shape:
            spec = cast("Json", body["spec"])
            spec["instanceTemplateRef"] = spec.pop("spotInstanceVMRef")
        body["metadata"] = {"name": NAME, "namespace": "default", "uid": "job-uid", "generation": 1}
        super().__init__(msgspec.convert(body, SpotInstanceJob))
        self.settings = settings
        self.check_problem = ""
        """What the API server has against the Job."""
        self.backups_served = True
        self.created: list[tuple[datetime, str]] = []
        self.deleted: list[tuple[datetime, str]] = []
        self.kill_before: int | None = None
        """The number of the write before which the operator is killed."""
        self.writes = 0
        self.released = False
        self.observer: DecisionObserver[SpotInstanceJob] | None = None
        self._answered = False
        self._restart()
        if template:
            self.add_template(later_shape=later_shape, changes=vm_changes)

    def _restart(self) -> None:
        """Start a new operator, which knows nothing but what is stored."""
        self.reconciler = SpotInstanceJobReconciler(self.settings)
        self.calls: dict[str, CallResult] = {}
        self.checks: dict[str, ActionResult] = {}
        self.requeue_at: datetime | None = None

    def run(self, seconds: float = 0.0) -> None:
        """Reconcile until nothing changes, and then whenever the operator asked for it."""
        end = self.now + timedelta(seconds=seconds)
        self.settle()
        while self.now < end:
            wake = self.requeue_at or end
            self.now = min(end, max(wake, self.now + timedelta(seconds=1)))
            self.settle()

    def settle(self, limit: int = 60) -> None:
        """Reconcile, and let the others react, until nothing changes any more."""
        for _ in range(limit):
            before, self._answered = self._state(), False
            self.reconcile()
            self.react()
            if self._state() == before and not self._answered:
                return
        raise AssertionError("does not settle")

    def reconcile(self) -> None:
        """Reconcile once; a killed operator is started again."""
        try:
            self._reconcile()
        except KilledError:
            self._restart()
            self._reconcile()

    def _reconcile(self) -> None:
        record = decode_record(self.job.status.argosy, SpotJobRecord)
        needs = list(self.reconciler.needs(self.job, record))
        inputs = self._inputs(needs)
        decision = self.reconciler.decide(self.job, record, inputs, self.now)
        before = self.job
        self._write(decision)
        if self.observer is not None:
            self.observer.decided(before, decision)
        self.events += [(self.now, e.reason, e.message) for e in decision.events]
        self._background(decision.actions)
        staged = [a for a in decision.actions if not isinstance(a, Call)]
        for action in sorted(staged, key=lambda a: a.child.stage if isinstance(a, Apply) else 9):
            self._execute(action)
        self.requeue_at = decision.requeue_at
        if decision.released and self.job.metadata.deletion_timestamp is not None:
            self.released = True

    def _inputs(self, needs: Iterable[Need]) -> Inputs:
        children = tuple(obj for kind in self.reconciler.owns for obj in self.kinds[kind].values())
        found = {need: self._find(need) for need in needs if not isinstance(need, View)}
        views = {need: self._view() for need in needs if isinstance(need, View)}
        unserved = frozenset() if self.backups_served else frozenset({CheckpointBackup})
        return Inputs(
            children,
            found,
            call_results=dict(self.calls),
            views=views,
            check_results=dict(self.checks),
            unserved=unserved,
        )

    def _find(self, need: Ref[KubernetesObject] | Matching[KubernetesObject]) -> tuple[KubernetesObject, ...]:
        if need.kind is SpotInstanceJob:
            return (self.job,)
        store = self.kinds[need.kind]
        if isinstance(need, Ref):
            return (store[need.name],) if need.name in store else ()
        index: Mapping[str, Callable[[KubernetesObject], Iterable[str]]] = {
            spot_pods.JOB_INDEX: spot_pods.pods_by_job,
            spot_pods.USAGE_INDEX: spot_pods.pods_by_usage,
            spot_pods.ALL_INDEX: spot_pods.everything,
        }
        return tuple(obj for obj in store.values() if need.value in index[need.index](obj))

    def _view(self) -> ViewState:
        if self.secret is None:
            return ViewState(problem="secret default/registry not found")
        return ViewState(SecretContent(self.secret), self.now)

    def _count_write(self) -> None:
        self.writes += 1
        if self.kill_before == self.writes:
            raise KilledError

    def _write(self, decision: Decision) -> None:
        if decision.status != self.job.status:
            self._count_write()
            raw = msgspec.json.encode(decision.status)
            status = msgspec.json.decode(raw, type=type(self.job.status))
            assert status == decision.status, "the status is another one when it is read again"
            self.job = replace(self.job, status=status)

    def _background(self, actions: Iterable[Action]) -> None:
        calls = {action.key: action for action in actions if isinstance(action, Call)}
        self.calls = {key: result for key, result in self.calls.items() if key in calls}
        for key, call in calls.items():
            if key not in self.calls:
                self.calls[key], self._answered = self.answer(call), True

    def _execute(self, action: Action) -> None:
        self._count_write()
        match action:
            case Apply(child, ""):
                self._create(action)
            case Remove(kind, name, uid):
                existing = self.kinds[kind].get(name)
                if existing is not None and existing.metadata.uid == uid:
                    self._delete(kind, name)
            case Patch(kind, name, _, uid, patch):
                pod = self.pods.get(name)
                if pod is not None and pod.metadata.uid == uid:
                    annotations = cast("Json", cast("Json", patch["metadata"])["annotations"])
                    meta = replace(
                        pod.metadata,
                        annotations={**pod.metadata.annotations, **cast("dict[str, str]", annotations)},
                    )
                    self.pods[name] = replace(pod, metadata=meta)
            case Check(child):
                status = ActionStatus.INVALID if self.check_problem else ActionStatus.DONE
                self._answered = self._answered or action.key not in self.checks
                self.checks = {
                    action.key: ActionResult("Job", child.name, status, self.check_problem, verb="Check")
                }
            case _:
                raise AssertionError(action)

    def _create(self, action: Apply) -> None:
        child = action.child
        store = self.kinds[child.kind]
        if child.name in store:
            return
        stored = msgspec.json.encode(self.job.status.argosy).decode()
        assert child.kind is SecretMetadata or f'"{child.name}"' in stored, f"{child.name} is not recorded"
        body = child_body(Owner.from_object(self.job), child)
        meta = cast("Json", body["metadata"])
        self.numbers += 1
        meta |= {"uid": f"uid-{self.numbers}", "creationTimestamp": self.now.isoformat()}
        wire = msgspec.json.decode(msgspec.json.encode(body))
        store[child.name] = msgspec.convert(wire, child.kind)
        self.created.append((self.now, f"{child.kind.resource.kind} {child.name}"))
        if child.kind is Job:
            self.bodies[child.name] = wire
            self._check_fenced(wire)
        if child.kind is ProvisionedInstance:
            self._check_one_vm(store[child.name])

    def _check_fenced(self, body: Json) -> None:
        index = cast("Json", cast("Json", body["metadata"])["labels"])["training.dcnlab.com/job-replica"]
        for pod in self.pods.values():
            if pod.metadata.labels.get("training.dcnlab.com/job-replica") != index or pod.has_ended:
                continue
            node = self.nodes.get(pod.spec.node_name)
            out = node is not None and any(t.key.endswith("out-of-service") for t in node.spec.taints)
            instance = self.instances.get(pod.spec.node_name)
            gone = pod.metadata.labels.get(INSTANCE_LABEL) and (
                instance is None or instance.status.state in STOPPED_STATES
            )
            assert out or gone, f"a second Job of replica {index} while {pod.metadata.name} may run"

    def _check_one_vm(self, new: KubernetesObject) -> None:
        label = "training.dcnlab.com/job-replica"
        holding = [
            instance.metadata.name
            for instance in self.instances.values()
            if instance.metadata.labels.get(label) == new.metadata.labels.get(label)
            and not instance.status.preemption_notice
            and instance.status.state not in NOTICE_STATES
            and not self.is_silent(instance.metadata.name)
            and not self.is_announced(instance.metadata.name)
        ]
        assert len(holding) == 1, f"two VMs hold a replica: {holding}"

    def _delete(self, kind: type[KubernetesObject], name: str) -> None:
        del self.kinds[kind][name]
        self.deleted.append((self.now, f"{kind.resource.kind} {name}"))
        if kind is ProvisionedInstance:
            self.lose_node(name)
        if kind is Job:
            for pod in list(self.pods.values()):
                unreachable = self.is_silent(pod.spec.node_name) or self.keep_pods
                if pod.metadata.labels.get("job-name") == name and not unreachable:
                    del self.pods[pod.metadata.name]

    def _state(self) -> object:
        stores = {kind.__name__: dict(store) for kind, store in self.kinds.items()}
        return msgspec.json.encode((self.status, stores, sorted(self.calls), sorted(self.checks)))
