"""AresJobs for tests, and a stage on which one is played: passes over objects, without a server.

A `Played` job is never changed: each pass gives a new one, with the status that the pass would have written
and the actions that it would have performed.
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
from argosy.workload.decide import decide, plan_invalid_deletion
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
    written = {
        key: {"template": template(NAMES.get(framework, "main")), **role} if isinstance(role, dict) else role
        for key, role in roles.items()
    }
    spec = {"frameworkType": framework, "roleSpecs": written, **fields}
    metadata = {"name": name, "namespace": "ns", "uid": "job-uid", "generation": 1}
    return msgspec.convert({"metadata": metadata, "spec": spec}, AresJob)


def lowered(obj: AresJob) -> Workload:
    found = DIALECT.to_workload(obj)
    assert isinstance(found, Workload), str(found)
    return found


def problems(obj: AresJob) -> str:
    """What is wrong with a job; empty if nothing."""
    found = DIALECT.to_workload(obj)
    return str(found) if isinstance(found, Problems) else ""


class Cases:
    """A table of cases that are played, each registered under its sentence."""

    def __init__(self) -> None:
        self.table: dict[str, Callable[[], None]] = {}

    def __call__(self, sentence: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def register(play: Callable[[], None]) -> Callable[[], None]:
            assert sentence not in self.table, sentence
            self.table[sentence] = play
            return play

        return register


class Played(Struct, frozen=True):
    """A job after some passes."""

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
        """Places that the last pass made pods in."""
        return [f"{one.role}-{one.index}" for one in self.actions if isinstance(one, CreatePod)]

    @property
    def deleted(self) -> list[str]:
        return [one.name for one in self.actions if isinstance(one, DeletePod)]

    def applied(self, kind: type[KubernetesObject]) -> list[Child]:
        """Children of this kind that the last pass created or updated."""
        applies = [one.child for one in self.actions if isinstance(one, Apply)]
        return [child for child in applies if child.kind is kind]

    @property
    def remarks(self) -> list[PatchMetadata]:
        return [one for one in self.actions if isinstance(one, PatchMetadata)]

    def role(self, name: str = "worker") -> RoleStatus:
        return self.obj.status.role_statuses[name]

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = next((one for one in self.obj.status.conditions if one.type == kind), None)
        return (found.status, found.reason, found.message) if found else ("", "", "")

    def went(self, observed: Observed, seconds: float = 1.0) -> "Played":
        """The job after a pass that saw this, so many seconds after the last."""
        at = self.at + seconds
        obj = self._kept_up()
        lower, before = DIALECT.to_workload(obj), read_record(obj) or adopted_record(obj)
        if isinstance(lower, Problems):
            plan = plan_invalid_deletion(minimal_workload(obj), before, lower, observed, later(at))
        else:
            plan = decide(lower, before, observed, later(at))
        workload = None if isinstance(lower, Problems) else lower
        status = DIALECT.to_status(
            obj, StatusInput(workload, plan.record, with_planned_pods(observed, plan.actions))
        )
        back = msgspec.json.decode(msgspec.json.encode(status), type=AresJobStatus)
        assert back == status, "a status comes back as it was written"
        after = replace(obj, status=back)
        return Played(after, at, plan, tuple(API.status_events(StatusChange(obj, after, plan, workload))))

    def saw(self, *pods: ObservedPod, seconds: float = 1.0) -> "Played":
        return self.went(Observed(pods=pods), seconds)

    def started(self) -> "Played":
        """After the passes that show it as Pending and make its pods."""
        return self.saw().saw()

    def edited(self, **fields: object) -> "Played":
        """The job with other fields in its spec, of which a merge patch is made."""
        spec = copy.deepcopy(dict(self.obj.spec))
        merge(spec, fields)
        meta = replace(self.obj.metadata, generation=self.obj.metadata.generation + 1)
        return replace(self, obj=replace(self.obj, metadata=meta, spec=spec))

    def _kept_up(self) -> AresJob:
        patch = API.spec_patch(self.obj)
        if patch is None:
            return self.obj
        spec = copy.deepcopy(dict(self.obj.spec))
        added, metadata = patch.get("spec", {}), patch.get("metadata", {})
        assert isinstance(added, dict)
        assert isinstance(metadata, dict)
        merge(spec, added)
        labels: dict[str, object] = dict(self.obj.metadata.labels)
        merge(labels, metadata.get("labels", {}))
        meta = replace(
            self.obj.metadata,
            generation=self.obj.metadata.generation + bool(added),
            labels={key: str(value) for key, value in labels.items()},
        )
        return replace(self.obj, metadata=meta, spec=spec)


def played(obj: AresJob) -> Played:
    return Played(obj)


def merge(under: dict[str, object], over: dict[str, object]) -> None:
    """Apply a merge patch in place."""
    for name, value in over.items():
        below = under.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            merge(below, value)
        elif value is None:
            under.pop(name, None)
        else:
            under[name] = value


def messages(events: Iterable[EmitEvent], reason: str) -> list[str]:
    return [one.message for one in events if one.reason == reason]
