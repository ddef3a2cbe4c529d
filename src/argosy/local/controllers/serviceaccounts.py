"""Restores the default service account and the CA ConfigMap of every active namespace."""

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import AlreadyExists, Forbidden, NotFound
from argosy.kinds.kubernetes import ConfigMap, ServiceAccount
from argosy.local import namespace_defaults
from argosy.local.controllers.api_types import Namespace
from argosy.local.controllers.informers import ControllerContext


class ServiceAccountsController:
    def __init__(self, context: ControllerContext, authority: str) -> None:
        self._context = context
        self._authority = authority
        self._controller: Controller[str] = Controller("accounts", self._reconcile)
        context.namespaces.subscribe(self._namespace_changed)
        context.service_accounts.subscribe(self._object_changed)
        context.ca_config_maps.subscribe(self._object_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.new is not None:
            self._controller.enqueue(change.new.metadata.name)

    def _object_changed(self, change: Change[ServiceAccount] | Change[ConfigMap]) -> None:
        part = change.new or change.old
        if part is not None:
            self._controller.enqueue(part.metadata.namespace)

    async def _reconcile(self, name: str) -> Requeue | None:
        namespace = self._context.namespaces.get("", name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return None
        try:
            await self._ensure_account(name)
            await self._ensure_ca_bundle(name)
        except (AlreadyExists, NotFound):
            return None  # the caches are behind: their update enqueues the key again
        except Forbidden:
            return None  # the namespace is terminating
        return None

    async def _ensure_account(self, namespace: str) -> None:
        if self._context.service_accounts.get(namespace, namespace_defaults.SERVICE_ACCOUNT) is None:
            body = namespace_defaults.service_account(namespace)
            self._context.service_accounts.put(
                await self._context.client.create(ServiceAccount, body, namespace)
            )

    async def _ensure_ca_bundle(self, namespace: str) -> None:
        config_map = self._context.ca_config_maps.get(namespace, namespace_defaults.CA_CONFIG_MAP)
        data = namespace_defaults.ca_data(self._authority)
        if config_map is None:
            body = namespace_defaults.ca_config_map(namespace, self._authority)
            written = await self._context.client.create(ConfigMap, body, namespace)
        elif config_map.data != data:
            change = {"data": dict.fromkeys(config_map.data, None) | data}
            written = await self._context.client.patch(
                ConfigMap, namespace_defaults.CA_CONFIG_MAP, change, namespace
            )
        else:
            return
        self._context.ca_config_maps.put(written)
