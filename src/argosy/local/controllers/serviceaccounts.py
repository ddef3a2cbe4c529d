"""Every namespace keeps its furnishings: put back when somebody deletes or empties them, while it lives."""

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import AlreadyExists, Forbidden, NotFound
from argosy.kinds.kubernetes import ConfigMap, ServiceAccount
from argosy.local import namespace_defaults
from argosy.local.controllers.informers import Shared
from argosy.local.controllers.kinds import Namespace


class AccountsController:
    def __init__(self, shared: Shared, authority: str) -> None:
        self._shared = shared
        self._authority = authority
        self._controller: Controller[str] = Controller("accounts", self._pass)
        shared.namespaces.subscribe(self._namespace_changed)
        shared.accounts.subscribe(self._part_changed)
        shared.authorities.subscribe(self._part_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.new is not None:
            self._controller.enqueue(change.new.metadata.name)

    def _part_changed(self, change: Change[ServiceAccount] | Change[ConfigMap]) -> None:
        part = change.new or change.old
        if part is not None:
            self._controller.enqueue(part.metadata.namespace)

    async def _pass(self, name: str) -> Requeue | None:
        namespace = self._shared.namespaces.get("", name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return None
        try:
            await self._account(name)
            await self._bundle(name)
        except (AlreadyExists, NotFound):
            return None  # the caches are a moment behind; what they bring makes the next pass
        except Forbidden:
            return None  # the namespace is on its way out
        return None

    async def _account(self, namespace: str) -> None:
        if self._shared.accounts.get(namespace, namespace_defaults.ACCOUNT) is None:
            body = namespace_defaults.account(namespace)
            self._shared.accounts.put(await self._shared.client.create(ServiceAccount, body, namespace))

    async def _bundle(self, namespace: str) -> None:
        known = self._shared.authorities.get(namespace, namespace_defaults.AUTHORITY)
        data = namespace_defaults.certificate_data(self._authority)
        if known is None:
            body = namespace_defaults.authority(namespace, self._authority)
            written = await self._shared.client.create(ConfigMap, body, namespace)
        elif known.data != data:
            change = {"data": dict.fromkeys(known.data, None) | data}
            written = await self._shared.client.patch(
                ConfigMap, namespace_defaults.AUTHORITY, change, namespace
            )
        else:
            return
        self._shared.authorities.put(written)
