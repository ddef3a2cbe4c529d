"""Executes the plans of a simulated TrainingJob in the order of the real executor, with its answers."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from argosy.dialects.base import JobApi
from argosy.kinds.trainingjob import TrainingJob
from argosy.plan.actions import ActionResult, ActionStatus, Apply, Exec, ExecResult, Remove
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.children import job_owner
from argosy.workload.model import Workload
from argosy.workload.plan import Action, ConfirmPod, CreatePod, DeleteJob, DeletePod
from tests.support.et_cluster import EtCluster

Answer = Callable[[Exec], ExecResult | None]

_STAGES: tuple[tuple[type[Action], ...], ...] = (
    (Exec,),
    (Apply,),
    (CreatePod, DeletePod, ConfirmPod),
    (Remove,),
    (DeleteJob,),
)
_REPORTED = (ActionStatus.DONE, ActionStatus.FORBIDDEN, ActionStatus.RETRY, ActionStatus.INVALID)


class Memory:
    """What the operator knows and has not stored; it is lost when it is killed."""

    def __init__(self) -> None:
        self.results: dict[str, ExecResult] = {}
        self.failures: dict[tuple[str, str], ActionResult] = {}
        self.absent: set[tuple[str, int]] = set()


class EtExecutor:
    """Executes actions on the cluster, and calls `step` before each of them."""

    def __init__(
        self, api: JobApi[TrainingJob], cluster: EtCluster, answer: Answer, step: Callable[[str], None]
    ) -> None:
        self.memory = Memory()
        self.answer = answer
        self.calls: list[Exec] = []
        self.job_deleted = False
        self._api = api
        self._cluster = cluster
        self._step = step

    def execute(self, workload: Workload, actions: Sequence[Action]) -> list[ActionResult]:
        """Return what the real executor reports: what was done, and rejections that are new."""
        memory = self.memory
        wanted = {action.key for action in actions if isinstance(action, Exec)}
        memory.results = {key: result for key, result in memory.results.items() if key in wanted}
        memory.absent = set()
        before, memory.failures = memory.failures, {}
        reported: list[ActionResult] = []
        for stage in _STAGES:
            if any(kind != "Pod" for kind, _ in memory.failures):
                break  # pods need the children that could not be created
            for action in actions:
                if not isinstance(action, stage):
                    continue
                self._step(_title(action))
                result = self._execute(workload, action)
                if result is None:
                    continue
                if result.status is not ActionStatus.DONE:
                    memory.failures[result.kind, result.name] = result
                if result.status in _REPORTED and before.get((result.kind, result.name)) != result:
                    reported.append(result)
        return reported

    def _execute(self, workload: Workload, action: Action) -> ActionResult | None:
        match action:
            case Apply():
                return self._cluster.apply(job_owner(workload), action)
            case CreatePod():
                name = workload.hostname(action.role, action.index)
                renderer = PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid)
                body = renderer.for_job(workload, self._api.inject).render(action, name)
                result = self._cluster.create_pod(name, body)
                return replace(result, role=action.role, index=action.index)
            case DeletePod():
                return self._cluster.delete_pod(action)
            case ConfirmPod():
                if workload.hostname(action.role, action.index) not in self._cluster.pods:
                    self.memory.absent.add((action.role, action.index))
            case Remove():
                return self._cluster.remove(action)
            case Exec():
                self._call(action)
            case DeleteJob():
                self.job_deleted = True
            case _:
                raise AssertionError(action)
        return None

    def _call(self, action: Exec) -> None:
        if action.key in self.memory.results:
            return
        self.calls.append(action)
        if (result := self.answer(action)) is not None:
            self.memory.results[action.key] = result


def _title(action: Action) -> str:
    """Return what an action does, in a few words."""
    match action:
        case Apply(child):
            return f"apply {child.kind.resource.kind} {child.name}"
        case CreatePod(role, index):
            return f"create {role} {index}"
        case ConfirmPod(role, index):
            return f"confirm {role} {index}"
        case DeletePod(name):
            return f"delete {name}"
        case Remove():
            return f"remove {action.kind.resource.kind} {action.name}"
        case Exec(key, pod):
            return f"{key.partition('/')[0]} in {pod}"
        case _:
            return type(action).__name__
