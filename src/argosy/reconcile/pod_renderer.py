"""Renders the pods of jobs: asks the framework what each replica needs, and puts it into the template."""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.rejections import SpecRejectedError
from argosy.reconcile.render import Json, PodIdentity, RoleTemplate, render_role
from argosy.reconcile.render_checkpoint import (
    checkpoint_variables,
    with_checkpoint,
    with_checkpoint_in_spec,
)
from argosy.reconcile.render_context import RenderContext
from argosy.reconcile.render_hosts import with_host_files
from argosy.reconcile.render_restored import with_restored_images
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.children import service_account_name
from argosy.workload.gang_schedulers.registry import GANG_SCHEDULERS
from argosy.workload.model import Role, Workload
from argosy.workload.node_affinity import with_avoided_nodes
from argosy.workload.notice_saves import nodes_to_avoid
from argosy.workload.plan import CreatePod
from argosy.workload.process_saves import restored_checkpoint
from argosy.workload.record import Record

Inject = Callable[[Workload, Role, int], Injection | None]
"""Returns what a replica needs from its framework; None if the framework is not installed."""


_NEW_RECORD = Record()


class UnrenderableError(Exception):
    """The framework's adapter failed on this workload; the message says how."""


class PodRenderer:
    def __init__(self, site: RenderContext, token: Callable[[str], str]) -> None:
        self.context = site
        self.token = token
        self.bodies = ByteBudget()
        """Shared by the pods of all jobs."""
        self.avoided_nodes: Callable[[str], Sequence[str]] = lambda _: ()
        """Returns the nodes on which no new pods of a namespace shall be placed."""

    def use_ca(self, authority: str) -> None:
        """Use this certificate authority in pods that are rendered from now on."""
        self.context = replace(self.context, ca_pem=authority)

    def for_job(self, workload: Workload, inject: Inject, record: Record = _NEW_RECORD) -> "JobPodRenderer":
        """Return a renderer of the pods of one job, on nodes and from checkpoints as its Record says."""
        avoided, restored = nodes_to_avoid(workload, record), restored_checkpoint(workload, record)
        return JobPodRenderer(self, workload, inject, record.gang_scheduler, avoided, restored)

    def render_role(
        self,
        workload: Workload,
        role: Role,
        injection: Injection,
        gang_backend: str,
        avoided: Sequence[str] = (),
    ) -> RoleTemplate:
        if injection.initializer:
            _check_volumes(workload, role, injection.initializer.host_folders)
        backend = GANG_SCHEDULERS.get(gang_backend) if workload.gang else None
        token = self.token(workload.uid)
        template = render_role(
            self.context,
            workload,
            role,
            injection,
            token=token,
            membership=backend.membership(workload, role.name) if backend else None,
            service_account=service_account_name(workload, role.name)
            if injection.remote_exec or injection.force_service_account
            else "",
        )
        nodes = tuple(dict.fromkeys((*self.avoided_nodes(workload.namespace), *avoided)))
        template = replace(template, spec=with_avoided_nodes(template.spec, nodes))
        if workload.checkpoint is not None and workload.checkpoint.is_kept_by_program:
            template = with_checkpoint(template, self.context, token)
        if injection.host_folders is None:
            return template
        return with_host_files(template, self.context, injection.host_folders, token)

    def with_checkpoint(self, spec: Json, workload: Workload, pod: CreatePod) -> Json:
        """Return the spec of a pod that another controller creates, as one that saves and resumes."""
        return with_checkpoint_in_spec(spec, workload, pod, self.context, self.token(workload.uid))


def _check_volumes(workload: Workload, role: Role, reserved: Collection[str]) -> None:
    """Raise if a template names a volume that holds the administrator's folders of the node.

    They are for the operator's init container alone: a user who could mount them would have a hostPath that
    the cluster may not allow them.
    """
    spec = _object(role.template.get("spec"))
    path = f"{workload.semantics.roles_path}.{role.name}.template.spec"
    named = [(f"{path}.volumes[{at}]", volume) for at, volume in _objects(spec.get("volumes"))]
    for part in ("initContainers", "containers"):
        for index, container in _objects(spec.get(part)):
            mounts = f"{path}.{part}[{index}].volumeMounts"
            named += [(f"{mounts}[{at}]", mount) for at, mount in _objects(container.get("volumeMounts"))]
    if wrong := [(where, obj["name"]) for where, obj in named if obj.get("name") in reserved]:
        raise SpecRejectedError(
            "; ".join(
                f'{where}.name: invalid value "{name}": reserved for the init container `initializer`'
                for where, name in wrong
            )
        )


def _objects(value: object) -> list[tuple[int, Mapping[str, object]]]:
    return [(index, _object(item)) for index, item in enumerate(value if isinstance(value, list) else [])]


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


class JobPodRenderer:
    """Renders the pods of one job during one reconcile; what the pods of a role share is rendered once."""

    def __init__(
        self,
        renderer: PodRenderer,
        workload: Workload,
        inject: Inject,
        gang_backend: str,
        avoided: Sequence[str] = (),
        restored: SavedCheckpoint | None = None,
    ) -> None:
        self._renderer = renderer
        self._restored = restored
        self._avoided = avoided
        self._gang_backend = gang_backend
        self._workload = workload
        self._inject = inject
        self._role_templates: dict[str, tuple[Injection, RoleTemplate]] = {}

    def render(self, action: CreatePod, name: str) -> Json:
        identity = PodIdentity(
            name=name,
            index=action.index,
            attempt=action.attempt,
            replacement=action.replacement,
            added_by=action.added_by,
        )
        role = self._workload.roles[action.role]
        injection = self._injection(role, action.index)
        variables = {**checkpoint_variables(self._workload, action), **injection.env}
        body = self._role_template(role, injection).render_pod(identity, variables)
        policy = self._workload.checkpoint
        if self._restored is None or policy is None or policy.images is None:
            return body
        return with_restored_images(body, self._restored, policy.images.secret)

    def _role_template(self, role: Role, injection: Injection) -> RoleTemplate:
        """Return the template of the role's last pod, unless this one differs in more than variables."""
        shared = replace(injection, env={})
        last = self._role_templates.get(role.name)
        if last is None or last[0] != shared:
            template = self._renderer.render_role(
                self._workload, role, injection, self._gang_backend, self._avoided
            )
            last = self._role_templates[role.name] = (shared, template)
        return last[1]

    def _injection(self, role: Role, index: int) -> Injection:
        workload = self._workload
        try:
            injection = self._inject(workload, role, index)
        except Exception as error:  # adapters are plug-ins: their errors are reported, not fatal
            raise UnrenderableError(f"framework {workload.framework} failed: {error!r}") from error
        if injection is None:
            raise UnrenderableError(f"framework {workload.framework} is not installed in the operator")
        return injection
