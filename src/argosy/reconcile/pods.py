"""From an action to the body of its pod: asks the framework what this place needs and renders it."""

from collections.abc import Callable

from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.reconcile.render import Json, Mould, Place, mould
from argosy.reconcile.site import Site
from argosy.workload.children import account
from argosy.workload.model import Role, Workload
from argosy.workload.plan import CreatePod

Inject = Callable[[Workload, Role, int], Injection | None]
"""What a place needs from its framework, as the job's dialect has it; None if that is not installed."""


class UnrenderableError(Exception):
    """The framework's adapter failed on this workload; the message says how."""


class PodMaker:
    def __init__(self, site: Site, token: Callable[[str], str]) -> None:
        self.site = site
        self.token = token

    def of(self, workload: Workload, inject: Inject) -> "JobPods":
        return JobPods(self, workload, inject)

    def mould(self, workload: Workload, role: Role, injection: Injection) -> Mould:
        return mould(
            self.site,
            workload,
            role,
            injection,
            token=self.token(workload.uid),
            group=workload.name if workload.gang else "",
            service_account=account(workload, role.name) if injection.remote_start else "",
        )


class JobPods:
    """The pods of one job, for one pass: what the framework asks for alike in a role is rendered once."""

    def __init__(self, maker: PodMaker, workload: Workload, inject: Inject) -> None:
        self._maker = maker
        self._workload = workload
        self._inject = inject
        self._moulds: dict[str, tuple[Injection, Mould]] = {}

    def body(self, action: CreatePod, name: str) -> Json:
        place = Place(
            name=name,
            index=action.index,
            attempt=action.attempt,
            replacement=action.replacement,
        )
        role = self._workload.roles[action.role]
        injection = self._injection(role, action.index)
        return self._mould(role, injection).pod(place, injection.env)

    def _mould(self, role: Role, injection: Injection) -> Mould:
        """The one that served the pod before, unless this one differs in more than values of variables."""
        alike = replace(injection, env={})
        known = self._moulds.get(role.name)
        if known is None or known[0] != alike:
            known = self._moulds[role.name] = (alike, self._maker.mould(self._workload, role, injection))
        return known[1]

    def _injection(self, role: Role, index: int) -> Injection:
        workload = self._workload
        try:
            injection = self._inject(workload, role, index)
        except Exception as error:  # an adapter may come from anywhere; its faults are told, not fatal
            raise UnrenderableError(f"framework {workload.framework} failed: {error!r}") from error
        if injection is None:
            raise UnrenderableError(f"framework {workload.framework} is not installed in the operator")
        return injection
