"""From an action to the body of its pod: asks the framework what this place needs and renders it."""

from collections.abc import Callable

from argosy.frameworks.base import Framework
from argosy.reconcile.render import Json, Place, render_pod
from argosy.reconcile.site import Site
from argosy.workload.children import account
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod


class UnrenderableError(Exception):
    """The framework's adapter failed on this workload; the message says how."""


class PodMaker:
    def __init__(
        self, site: Site, token: Callable[[str], str], framework: Callable[[str], Framework | None]
    ) -> None:
        self.site = site
        self.token = token
        self.framework = framework

    def body(self, workload: Workload, action: CreatePod, name: str) -> Json:
        role = workload.roles[action.role]
        place = Place(
            name=name,
            index=action.index,
            attempt=action.attempt,
            replacement=action.replacement,
        )
        framework = self.framework(workload.framework)
        if framework is None:
            raise UnrenderableError(f"framework {workload.framework} is not installed in the operator")
        try:
            injection = framework.inject(workload, role, action.index)
        except Exception as error:  # an adapter may come from anywhere; its faults are told, not fatal
            raise UnrenderableError(f"framework {workload.framework} failed: {error!r}") from error
        return render_pod(
            self.site,
            workload,
            role,
            place,
            injection,
            token=self.token(workload.uid),
            group=workload.name if workload.gang else "",
            service_account=account(workload, role.name) if injection.remote_start else "",
        )
