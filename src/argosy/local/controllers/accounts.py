"""Every namespace has the ServiceAccount `default` and the cluster's certificate authority as a ConfigMap.

Both are put back when somebody deletes or empties them, as long as the namespace lives.
"""

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Wake
from argosy.engine.errors import AlreadyExists, Forbidden, NotFound
from argosy.kinds.kubernetes import ConfigMap, ServiceAccount
from argosy.local.controllers.kinds import Namespace
from argosy.local.controllers.shared import ROOT_CA, Shared

CA_KEY = "ca.crt"
NOTE = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when "
    "using internal endpoints such as the internal service IP or kubernetes.default.svc. "
    "No other usage is guaranteed across distributions of Kubernetes clusters."
}


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

    async def _pass(self, name: str) -> Wake | None:
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
        if self._shared.accounts.get(namespace, "default") is None:
            body = {"metadata": {"name": "default"}}
            self._shared.accounts.put(await self._shared.client.create(ServiceAccount, body, namespace))

    async def _bundle(self, namespace: str) -> None:
        known = self._shared.authorities.get(namespace, ROOT_CA)
        data = {CA_KEY: self._authority}
        if known is None:
            body = {"metadata": {"name": ROOT_CA, "annotations": NOTE}, "data": data}
            written = await self._shared.client.create(ConfigMap, body, namespace)
        elif known.data != data:
            gone = dict.fromkeys(known.data, None)
            written = await self._shared.client.patch(ConfigMap, ROOT_CA, {"data": gone | data}, namespace)
        else:
            return
        self._shared.authorities.put(written)
