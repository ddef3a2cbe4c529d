"""Builds AresJobs for tests, and simulates reconciles of a job without a server.

A `SimulatedJob` is immutable: each reconcile returns a new one, with the status that the reconcile would have
written and the actions that it would have executed.
"""

import copy
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.ares.adoption import adopted_record
from argosy.dialects.ares.api import ares_job_api, minimal_workload
from argosy.dialects.ares.dialect import AresJobDialect
from argosy.dialects.base import StatusChange, StatusInput, read_record
from argosy.kinds.aresjob import AresJob, AresJobStatus, RoleStatus
from argosy.plan.actions import Apply, EmitEvent
from argosy.plan.children import Child, KubernetesObject
from argosy.workload.decide import decide, plan_invalid_cleanup
from argosy.workload.model import Problems, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Action, CreatePod, DeletePod, PatchMetadata, Plan
from argosy.workload.pods import with_planned_pods
from tests.support.workloads import later

API = ares_job_api()
DIALECT = AresJobDialect()
NAMES = {"pytorch": "pytorch", "tensorflow": "tensorflow", "bagua": "bagua", "dask": "dask"}


def template(name: str = "main", **container: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": name, "image": "image", **container}]}}


def job(framework: str = "custom", /, *, name: str = "job", **fields: object) -> AresJob:
    """A job with these roles (`roles=`, each its own fields) and fields of the spec."""
    roles = fields.pop("roles", {"worker": {}})
    assert isinstance(roles, dict)
    role_specs = {
        key: {"template": template(NAMES.get(framework, "main")), **role} if isinstance(role, dict) else role
        for key, role in roles.items()
    }
    spec = {"frameworkType": framework, "roleSpecs": role_specs, **fields}
    metadata = {"name": name, "namespace": "ns", "uid": "job-uid", "generation": 1}
    return msgspec.convert({"metadata": metadata, "spec": spec}, AresJob)


def workload_of(obj: AresJob) -> Workload:
    result = DIALECT.to_workload(obj)
    assert isinstance(result, Workload), str(result)
    return result


def problems(obj: AresJob) -> str:
    """The problems of an invalid job; empty if it is valid."""
    result = DIALECT.to_workload(obj)
    return str(result) if isinstance(result, Problems) else ""


class CaseTable:
    """Registers test functions under their titles, for parametrized tests."""

    def __init__(self) -> None:
        self.table: dict[str, Callable[[], None]] = {}

    def __call__(self, title: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def register(case: Callable[[], None]) -> Callable[[], None]:
            assert title not in self.table, title
            self.table[title] = case
            return case

        return register


class SimulatedJob(Struct, frozen=True):
    """A job after some reconciles."""

    obj: AresJob
    at: float = 0.0
    plan: Plan | None = None
    events: tuple[EmitEvent, ...] = ()

    @property
    def status(self) -> AresJobStatus:
        return self.obj.status

    @property
    def phase(self) -> str:
        return self.obj.status.phase

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.plan.actions if self.plan else ()

    @property
    def created(self) -> list[str]:
        """The replicas, as role-index, for which the last reconcile created pods."""
        return [f"{action.role}-{action.index}" for action in self.actions if isinstance(action, CreatePod)]

    @property
    def deleted(self) -> list[str]:
        return [action.name for action in self.actions if isinstance(action, DeletePod)]

    def applied(self, kind: type[KubernetesObject]) -> list[Child]:
        """Children of this kind that the last reconcile created or updated."""
        applies = [action.child for action in self.actions if isinstance(action, Apply)]
        return [child for child in applies if child.kind is kind]

    @property
    def metadata_patches(self) -> list[PatchMetadata]:
        return [action for action in self.actions if isinstance(action, PatchMetadata)]

    def role(self, name: str = "worker") -> RoleStatus:
        return self.obj.status.role_statuses[name]

    def condition(self, kind: str) -> tuple[str, str, str]:
        condition = next((item for item in self.obj.status.conditions if item.type == kind), None)
        return (condition.status, condition.reason, condition.message) if condition else ("", "", "")

    def reconcile_observed(self, observed: Observed, seconds: float = 1.0) -> "SimulatedJob":
        """Return the job after a reconcile with this observation, so many seconds after the last one."""
        at = self.at + seconds
        obj = self._with_spec_patch()
        lowered_spec, before = DIALECT.to_workload(obj), read_record(obj) or adopted_record(obj)
        if isinstance(lowered_spec, Problems):
            plan = plan_invalid_cleanup(minimal_workload(obj), before, lowered_spec, observed, later(at))
        else:
            plan = decide(lowered_spec, before, observed, later(at))
        workload = None if isinstance(lowered_spec, Problems) else lowered_spec
        status = DIALECT.to_status(
            obj, StatusInput(workload, plan.record, with_planned_pods(observed, plan.actions))
        )
        decoded = msgspec.json.decode(msgspec.json.encode(status), type=AresJobStatus)
        assert decoded == status, "the status changes when encoded and decoded"
        after = replace(obj, status=decoded)
        return SimulatedJob(
            after, at, plan, tuple(API.status_events(StatusChange(obj, after, plan, workload)))
        )

    def reconcile(self, *pods: ObservedPod, seconds: float = 1.0) -> "SimulatedJob":
        return self.reconcile_observed(Observed(pods=pods), seconds)

    def start(self) -> "SimulatedJob":
        """Return the job after the reconciles that set phase Pending and create its pods."""
        return self.reconcile().reconcile()

    def with_spec(self, **fields: object) -> "SimulatedJob":
        """Return the job after a merge patch of its spec with these fields."""
        spec = copy.deepcopy(dict(self.obj.spec))
        apply_merge_patch(spec, fields)
        meta = replace(self.obj.metadata, generation=self.obj.metadata.generation + 1)
        return replace(self, obj=replace(self.obj, metadata=meta, spec=spec))

    def _with_spec_patch(self) -> AresJob:
        patch = API.spec_patch(self.obj)
        if patch is None:
            return self.obj
        spec = copy.deepcopy(dict(self.obj.spec))
        added, metadata = patch.get("spec", {}), patch.get("metadata", {})
        assert isinstance(added, dict)
        assert isinstance(metadata, dict)
        apply_merge_patch(spec, added)
        labels: dict[str, object] = dict(self.obj.metadata.labels)
        apply_merge_patch(labels, metadata.get("labels", {}))
        meta = replace(
            self.obj.metadata,
            generation=self.obj.metadata.generation + bool(added),
            labels={key: str(value) for key, value in labels.items()},
        )
        return replace(self.obj, metadata=meta, spec=spec)


def simulate(obj: AresJob) -> SimulatedJob:
    return SimulatedJob(obj)


def apply_merge_patch(target: dict[str, object], patch: dict[str, object]) -> None:
    """Apply a merge patch in place."""
    for name, value in patch.items():
        current = target.get(name)
        if isinstance(current, dict) and isinstance(value, dict):
            apply_merge_patch(current, value)
        elif value is None:
            target.pop(name, None)
        else:
            target[name] = value


def messages(events: Iterable[EmitEvent], reason: str) -> list[str]:
    return [event.message for event in events if event.reason == reason]
