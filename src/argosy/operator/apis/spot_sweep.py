"""Deletes VMs whose ProvisionedInstance does not exist any more, when this replica begins to lead and later.

A ProvisionedInstance keeps its finalizer until its VM is gone, so there should be none. But a finalizer can
be removed by hand, and a namespace can be deleted by force. Where to look is known from the objects that
exist; for those that are gone a ConfigMap in the operator's namespace names every project, zone and Secret
that was used.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct

from argosy.capacity.provider import CLUSTER_VIEW, ClusterIdentity, ObservedMachine, ZoneState
from argosy.capacity.providers.gce import DRIVER, Gce
from argosy.capacity.sweep import SWEEP_SECONDS, find_orphans, orphan_record
from argosy.dialects.spot.instance import credentials_of
from argosy.dialects.spot.instance_record import InstanceRecord
from argosy.dialects.spot.reasons import INSTANCE_DELETED
from argosy.engine.cache import Change
from argosy.engine.errors import AlreadyExists, ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import ConfigMap
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.operator.manager import Manager
from argosy.plan.actions import Call, CallStatus, SecretRef
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import View
from argosy.plan.drivers import Refusal
from argosy.plan.record import UnsupportedVersionError, decode_record
from argosy.reconcile.drivers import NoCredentialsError

log = Logger(__name__)

CONFIG_MAP = "argosy-machine-scopes"
MAX_SCOPES = 1000
WRITE_SECONDS = 1.0


class Scope(Struct, frozen=True):
    """Where VMs were requested, and with what."""

    namespace: str
    """Of the object; it decides what Secrets may be used."""
    project: str
    zone: str
    credentials: SecretRef

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]


class InstanceSweeper:
    """Sweeps VMs while this replica leads."""

    def __init__(self, manager: Manager, namespace: str) -> None:
        self._manager = manager
        self._namespace = namespace
        self._scopes: dict[str, Scope] = {}
        self._written: set[str] = set()
        self._changed = asyncio.Event()
        cache = manager.sources.shared(ProvisionedInstance)
        if cache is not None:
            cache.subscribe(self._note)

    async def run(self) -> None:
        """Sweep until cancelled; a sweep that fails is made again at the next time."""
        await self._manager.wait_ready()
        while True:
            try:
                await self._load_scopes()
                await self.sweep()
            except (ApiError, OSError) as error:
                log.warning("VMs could not be swept", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._write_new_scopes()

    async def sweep(self) -> None:
        """Look for VMs without an object wherever VMs were requested, and delete them."""
        manager = self._manager
        listed = await manager.client.list(ProvisionedInstance, manager.namespace)
        if listed.undecodable:
            return  # one of them may be the object of a VM
        uids = {obj.metadata.uid for obj in listed.items}
        cluster = await manager.drivers.fetch("", CLUSTER_VIEW)
        assert isinstance(cluster, ClusterIdentity)
        for scope in tuple(self._scopes.values()):
            view = View(DRIVER, f"{scope.project}/{scope.zone}", credentials=scope.credentials)
            try:
                zone = await manager.drivers.fetch(scope.namespace, view)
            except (NoCredentialsError, Refusal, OSError) as error:
                log.info("zone not swept", project=scope.project, zone=scope.zone, reason=str(error))
                continue
            assert isinstance(zone, ZoneState)
            for machine in find_orphans(zone, uids, cluster.uid, manager.clock.now()):
                await self._delete(scope, machine)

    async def _delete(self, scope: Scope, machine: ObservedMachine) -> None:
        record = orphan_record(machine, scope.project, scope.zone, scope.credentials)
        request = Gce().delete(record, f"{machine.uid}/{machine.id}")
        call = Call("sweep", DRIVER, request, scope.credentials)
        result = await self._manager.drivers.run(scope.namespace, call)
        done = result.status is CallStatus.DONE
        text = f"VM {machine.name} in {scope.project}/{scope.zone} belongs to no object any more"
        outcome = "and is deleted" if done else f"and cannot be deleted: {result.message}"
        log.warning("orphaned VM", machine=machine.name, zone=scope.zone, deleted=done)
        found = await self._config_map()
        if found is not None:
            kind: Literal["Normal", "Warning"] = "Normal" if done else "Warning"
            self._manager.recorder.event(found, kind, INSTANCE_DELETED, f"{text}, {outcome}")

    def _note(self, change: Change[KubernetesObject] | Change[ProvisionedInstance]) -> None:
        """Remember where the VM of a changed object may be."""
        obj = change.new
        if not isinstance(obj, ProvisionedInstance):
            return
        try:
            record = decode_record(obj.status.argosy, InstanceRecord)
        except UnsupportedVersionError:
            return
        if record is None or not record.machine.zone or len(self._scopes) >= MAX_SCOPES:
            return
        machine = record.machine
        namespace = obj.metadata.namespace
        scope = Scope(namespace, machine.project, machine.zone, credentials_of(obj))
        if scope.key not in self._scopes:
            self._scopes[scope.key] = scope
            self._changed.set()

    async def _write_new_scopes(self) -> None:
        """Write each new scope to the ConfigMap, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.sleep(WRITE_SECONDS)  # several at a time
            try:
                await self._write()
            except ApiError as error:
                log.warning("scopes of VMs could not be written", error=str(error))
                self._changed.set()

    async def _write(self) -> None:
        new = {key: scope for key, scope in self._scopes.items() if key not in self._written}
        if not new:
            return
        data = {key: msgspec.json.encode(scope).decode() for key, scope in new.items()}
        client = self._manager.client
        try:
            await client.patch(ConfigMap, CONFIG_MAP, {"data": data}, self._namespace)
        except NotFound:
            body: Mapping[str, object] = {"metadata": {"name": CONFIG_MAP}, "data": data}
            with suppress(AlreadyExists):
                await client.create(ConfigMap, body, self._namespace)
        self._written |= new.keys()

    async def _load_scopes(self) -> None:
        found = await self._config_map()
        for key, text in found.data.items() if found is not None else ():
            with suppress(msgspec.DecodeError):
                self._scopes.setdefault(key, msgspec.json.decode(text, type=Scope))
                self._written.add(key)

    async def _config_map(self) -> ConfigMap | None:
        try:
            return await self._manager.client.get(ConfigMap, CONFIG_MAP, self._namespace)
        except NotFound:
            return None
