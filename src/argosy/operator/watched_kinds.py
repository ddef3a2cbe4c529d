"""Watches each kind as soon as the cluster serves it, and runs its controller while this replica leads.

An operator that is installed before its CRDs is healthy and waits for them. A kind whose CRD exists, but not
in our version, is not waited for. If the operator may not read CRDs, every kind is tried.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.controller import Controller
from argosy.engine.errors import ApiError, Forbidden, NotFound
from argosy.engine.logs import Logger
from argosy.engine.objects import ApiObject, Key
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.resource import Resource

log = Logger(__name__)

CRD_RECHECK_SECONDS = 5.0
"""How often a missing CRD is looked for although no CRD changed: reading CRDs may have become forbidden."""

BUILT_IN_GROUPS = frozenset(
    f"{name}.k8s.io"
    for name in (
        "coordination",
        "discovery",
        "events",
        "networking",
        "node",
        "rbac.authorization",
        "resource",
        "scheduling",
        "storage",
    )
)
"""Groups of Kubernetes' own, besides those without a dot, such as `apps`. Their kinds have no CRD."""


class _Watcher(Protocol):
    @property
    def last_error(self) -> ApiError | None: ...


class AnyCache(Protocol):
    """A cache of any kind, without access to its objects."""

    @property
    def synced(self) -> bool: ...
    @property
    def seconds_since_event(self) -> float: ...
    @property
    def watcher(self) -> _Watcher: ...
    @property
    def kind(self) -> type[ApiObject]: ...
    async def run(self) -> None: ...
    async def wait_synced(self) -> None: ...


class WatchedKind:
    """A kind that is watched once it is served, and reconciled if it has a controller."""

    def __init__(
        self,
        cache: AnyCache,
        controller: Controller[Key] | None = None,
        required: Sequence[AnyCache] = (),
        wanted: asyncio.Event | None = None,
    ) -> None:
        self.cache = cache
        self.controller = controller
        self.is_running = False
        """True while the controller runs."""
        self._required = required
        """Caches of other kinds that reconciles read."""
        self.wanted = wanted
        """Set when the kind must be watched; None: from the start."""

    @property
    def resource(self) -> Resource:
        return self.cache.kind.resource

    @property
    def is_not_served(self) -> bool:
        """Return True if the API server does not serve our version of the kind."""
        return isinstance(self.cache.watcher.last_error, NotFound)

    async def run_controller(self) -> None:
        """Reconcile until cancelled, once the caches that reconciles read are filled."""
        if self.controller is None:
            return
        if missing := [cache.kind.resource.kind for cache in self._required if not cache.synced]:
            kinds = ", ".join(missing)
            log.warning("not reconciled until other kinds are served", kind=self.resource.kind, waiting=kinds)
        for cache in self._required:
            await cache.wait_synced()
        self.is_running = True
        try:
            await self.controller.run()
        finally:
            self.is_running = False


class Definitions:
    """The CRDs of the cluster, which say what kinds can be watched."""

    def __init__(self, client: Client) -> None:
        self.crds = Cache(client, CustomResourceDefinition)

    @property
    def forbidden(self) -> bool:
        """Return True if the operator may not read CRDs; then every kind is tried."""
        return isinstance(self.crds.watcher.last_error, Forbidden)

    @property
    def synced(self) -> bool:
        return self.crds.synced or self.forbidden

    def has_crd(self, name: str) -> bool:
        return self.crds.get("", name) is not None

    def may_be_served(self, resource: Resource) -> bool:
        """Return True if the kind is built in, which may be switched off, or if it has a CRD."""
        built_in = "." not in resource.group or resource.group in BUILT_IN_GROUPS
        return built_in or self.forbidden or self.has_crd(crd_name(resource))

    async def wait_until_served(self, resource: Resource) -> None:
        changed = asyncio.Event()

        def listen(_: Change[CustomResourceDefinition]) -> None:
            changed.set()

        self.crds.subscribe(listen)
        while not self.may_be_served(resource):
            changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CRD_RECHECK_SECONDS):
                    await changed.wait()


def crd_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
