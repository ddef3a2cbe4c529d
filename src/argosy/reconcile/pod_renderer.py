"""From an action to the body of its pod: asks the framework what this place needs and renders it."""

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.rejections import SpecRejectedError
from argosy.reconcile.render import Json, PodIdentity, RoleTemplate, render_role
from argosy.reconcile.render_context import RenderContext
from argosy.workload.children import account
from argosy.workload.gang_schedulers.registry import BACKENDS
from argosy.workload.model import Role, Workload
from argosy.workload.plan import CreatePod

Inject = Callable[[Workload, Role, int], Injection | None]
"""What a place needs from its framework, as the job's dialect has it; None if that is not installed."""


class UnrenderableError(Exception):
    """The framework's adapter failed on this workload; the message says how."""


class PodRenderer:
    def __init__(self, site: RenderContext, token: Callable[[str], str]) -> None:
        self.site = site
        self.token = token
        self.bodies = ByteBudget()
        """For the pods of all jobs."""

    def use_authority(self, authority: str) -> None:
        """Give pods that are made from now on this certificate authority."""
        self.site = replace(self.site, ca_pem=authority)

    def for_job(self, workload: Workload, inject: Inject, gang_backend: str = "") -> "JobPodRenderer":
        return JobPodRenderer(self, workload, inject, gang_backend)

    def mould(self, workload: Workload, role: Role, injection: Injection, gang_backend: str) -> RoleTemplate:
        if injection.initializer:
            _check_volumes(workload, role, self.site.initializers.volumes)
        backend = BACKENDS.get(gang_backend) if workload.gang else None
        return render_role(
            self.site,
            workload,
            role,
            injection,
            token=self.token(workload.uid),
            membership=backend.membership(workload, role.name) if backend else None,
            service_account=account(workload, role.name) if injection.remote_exec else "",
        )


def _check_volumes(workload: Workload, role: Role, reserved: Collection[str]) -> None:
    """Raise if a template names a volume that holds the administrator's folders of the node.

    They are for the operator's init container alone: a user who could mount them would have a hostPath that
    the cluster may not allow them.
    """
    spec = _object(role.template.get("spec"))
    path = f"{workload.roles_path}.{role.name}.template.spec"
    named = [(f"{path}.volumes[{at}]", volume) for at, volume in _objects(spec.get("volumes"))]
    for part in ("initContainers", "containers"):
        for index, container in _objects(spec.get(part)):
            mounts = f"{path}.{part}[{index}].volumeMounts"
            named += [(f"{mounts}[{at}]", mount) for at, mount in _objects(container.get("volumeMounts"))]
    if wrong := [(where, one["name"]) for where, one in named if one.get("name") in reserved]:
        raise SpecRejectedError(
            "; ".join(
                f'{where}.name: invalid value "{name}": reserved for the init container `initializer`'
                for where, name in wrong
            )
        )


def _objects(value: object) -> list[tuple[int, Mapping[str, object]]]:
    return [(index, _object(one)) for index, one in enumerate(value if isinstance(value, list) else [])]


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


class JobPodRenderer:
    """The pods of one job, for one pass: what the framework asks for alike in a role is rendered once."""

    def __init__(self, maker: PodRenderer, workload: Workload, inject: Inject, gang_backend: str) -> None:
        self._maker = maker
        self._gang_backend = gang_backend
        self._workload = workload
        self._inject = inject
        self._moulds: dict[str, tuple[Injection, RoleTemplate]] = {}

    def render(self, action: CreatePod, name: str) -> Json:
        place = PodIdentity(
            name=name,
            index=action.index,
            attempt=action.attempt,
            replacement=action.replacement,
        )
        role = self._workload.roles[action.role]
        injection = self._injection(role, action.index)
        return self._mould(role, injection).pod(place, injection.env)

    def _mould(self, role: Role, injection: Injection) -> RoleTemplate:
        """The one that served the pod before, unless this one differs in more than values of variables."""
        alike = replace(injection, env={})
        known = self._moulds.get(role.name)
        if known is None or known[0] != alike:
            made = self._maker.mould(self._workload, role, injection, self._gang_backend)
            known = self._moulds[role.name] = (alike, made)
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
