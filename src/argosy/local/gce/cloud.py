"""Simulates the rehearsal cloud: its VMs and operations, and how they change with time.

Nothing here waits: every access first executes the changes that have become due, in the order of their times.
So the cloud behaves the same with a clock that a test advances by hand.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

Json = Mapping[str, object]
Change = Literal["Created", "Running", "Notice", "Stopped", "Gone"]
Listener = Callable[["Instance", Change], None]


class CloudError(Exception):
    """A request is refused, with the status, reason and message of the API."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Instance(Struct):
    """A VM."""

    id: str
    name: str
    project: str
    zone: str
    body: Json
    """The request that has created it."""
    created: datetime
    internal_ip: str
    external_ip: str
    status: str = "PROVISIONING"
    preempted: bool = False
    """Whether its metadata has `preempted` as TRUE."""
    maintenance: str = "NONE"
    """The value of `maintenance-event` in its metadata."""

    @property
    def is_spot(self) -> bool:
        scheduling = self.body.get("scheduling")
        return isinstance(scheduling, dict) and scheduling.get("provisioningModel") == "SPOT"


class Operation(Struct):
    """Something that is done to a VM."""

    id: str
    name: str
    type: str
    project: str
    zone: str
    target: str
    """The name of the VM."""
    inserted: datetime
    request_id: str = ""
    user: str = ""
    status: str = "RUNNING"
    ended: datetime | None = None
    error: tuple[str, str] | None = None
    """Code and message."""


class Latency(Struct):
    """How long things take, in seconds."""

    insert: float = 2.0
    boot: float = 3.0
    """From the end of the operation until the VM is RUNNING."""
    delete: float = 2.0
    notice: float = 30.0
    """From the notice of a preemption until the VM is gone."""


class Cloud:
    """The VMs and operations of all projects."""

    def __init__(self, now: Callable[[], datetime], latency: Latency | None = None) -> None:
        self._now = now
        self.latency = latency or Latency()
        self.instances: dict[tuple[str, str, str], Instance] = {}
        """By project, zone and name."""
        self.operations: dict[str, Operation] = {}
        self.capacity: dict[str, int] = {}
        """VMs that a zone has room for; a zone that is not listed has no limit."""
        self.quota: dict[str, int] = {}
        """VMs that a project may have in a region; a region that is not listed has no limit."""
        self.ever: set[tuple[str, str, str]] = set()
        """Every VM there has been."""
        self.hangs: set[str] = set()
        """Types of operations that never end."""
        self._requests: dict[tuple[str, str], str] = {}
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def advance(self) -> None:
        """Execute the changes that are due."""
        while self._due and self._due[0][0] <= self._now():
            heapq.heappop(self._due)[2]()

    def next_change_at(self) -> datetime | None:
        """Return when the next change is due."""
        return self._due[0][0] if self._due else None

    def find(self, project: str, zone: str, name: str) -> Instance:
        """Return a VM; raises CloudError if there is none of that name."""
        self.advance()
        instance = self.instances.get((project, zone, name))
        if instance is None:
            path = f"projects/{project}/zones/{zone}/instances/{name}"
            raise CloudError(404, "notFound", f"The resource '{path}' was not found")
        return instance

    def insert(self, project: str, zone: str, body: Json, request_id: str, user: str = "") -> Operation:
        """Begin to create a VM; for a request id that was used before, return the earlier operation."""
        self.advance()
        name = str(body["name"])
        if (earlier := self._earlier_operation(project, request_id)) is not None:
            return earlier
        if (project, zone, name) in self.instances:
            path = f"projects/{project}/zones/{zone}/instances/{name}"
            raise CloudError(409, "alreadyExists", f"The resource '{path}' already exists")
        operation = self._begin("insert", project, zone, name, request_id, user)
        error = self._capacity_error(project, zone)
        seconds = self.latency.insert
        if "insert" in self.hangs:
            return operation
        if error is not None:
            self._after(seconds, lambda: self._end(operation, error))
            return operation
        number = next(self._numbers)
        instance = Instance(
            id=str(10**18 + number),
            name=name,
            project=project,
            zone=zone,
            body=body,
            created=self._now(),
            internal_ip=f"10.128.{number // 250 % 250}.{number % 250 + 2}",
            external_ip=f"203.0.113.{number % 250 + 2}" if _has_external_ip(body) else "",
        )
        self.instances[project, zone, name] = instance
        self.ever.add((project, zone, name))
        self._notify(instance, "Created")
        self._after(seconds / 2, lambda: self._set_status(instance, "STAGING", "PROVISIONING"))
        self._after(seconds, lambda: self._end(operation, None))
        self._after(seconds + self.latency.boot, lambda: self._start(instance))
        return operation

    def delete(self, project: str, zone: str, name: str, request_id: str, user: str = "") -> Operation:
        """Begin to delete a VM; for a request id that was used before, return the earlier operation."""
        self.advance()
        if (earlier := self._earlier_operation(project, request_id)) is not None:
            return earlier
        instance = self.find(project, zone, name)
        operation = self._begin("delete", project, zone, name, request_id, user)
        if "delete" in self.hangs:
            return operation
        instance.status = "STOPPING"
        self._notify(instance, "Notice")

        def remove() -> None:
            self._remove(instance)
            self._end(operation, None)

        self._after(self.latency.delete, remove)
        return operation

    def stop(self, project: str, zone: str, name: str, request_id: str = "", user: str = "") -> Operation:
        """Stop a VM as a user does; it stays, and so does its disk."""
        instance = self.find(project, zone, name)
        operation = self._begin("stop", project, zone, name, request_id, user)
        instance.status = "STOPPING"
        self._notify(instance, "Notice")

        def end() -> None:
            self._set_status(instance, "TERMINATED", "STOPPING")
            self._notify(instance, "Stopped")
            self._end(operation, None)

        self._after(self.latency.delete, end)
        return operation

    def preempt(self, project: str, zone: str, name: str) -> Operation:
        """Take a spot VM back: announce it in the metadata, and delete the VM after the notice."""
        instance = self.find(project, zone, name)
        operation = self._begin("compute.instances.preempted", project, zone, name, "", "system")
        instance.preempted = True
        instance.status = "STOPPING"
        self._notify(instance, "Notice")

        def remove() -> None:
            self._remove(instance)
            self._end(operation, None)

        self._after(self.latency.notice, remove)
        return operation

    def vanish(self, project: str, zone: str, name: str) -> None:
        """Remove a VM without an operation, so that nothing explains why it is gone."""
        self._remove(self.find(project, zone, name))

    def _earlier_operation(self, project: str, request_id: str) -> Operation | None:
        name = self._requests.get((project, request_id)) if request_id else None
        return self.operations.get(name) if name else None

    def _begin(
        self, kind: str, project: str, zone: str, target: str, request_id: str, user: str
    ) -> Operation:
        number = next(self._numbers)
        name = f"operation-{number}"
        operation = Operation(str(number), name, kind, project, zone, target, self._now(), request_id, user)
        self.operations[name] = operation
        if request_id:
            self._requests[project, request_id] = name
        return operation

    def _capacity_error(self, project: str, zone: str) -> tuple[str, str] | None:
        """Return code and message if one more VM exceeds the zone's capacity or the region's quota."""
        in_zone = [instance for instance in self.instances.values() if instance.zone == zone]
        if zone in self.capacity and len(in_zone) >= self.capacity[zone]:
            text = f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available"
            return "ZONE_RESOURCE_POOL_EXHAUSTED", text
        region = zone.rpartition("-")[0]
        in_region = [
            instance
            for instance in self.instances.values()
            if instance.project == project and instance.zone.rpartition("-")[0] == region
        ]
        if region in self.quota and len(in_region) >= self.quota[region]:
            limit = self.quota[region]
            return "QUOTA_EXCEEDED", f"Quota 'INSTANCES' exceeded. Limit: {limit}.0 in region {region}."
        return None

    def _start(self, instance: Instance) -> None:
        if instance.status in ("PROVISIONING", "STAGING"):
            instance.status = "RUNNING"
            self._notify(instance, "Running")

    def _set_status(self, instance: Instance, status: str, before: str) -> None:
        if instance.status == before:
            instance.status = status

    def _remove(self, instance: Instance) -> None:
        key = instance.project, instance.zone, instance.name
        if self.instances.get(key) is instance:
            del self.instances[key]
            self._notify(instance, "Gone")

    def _end(self, operation: Operation, error: tuple[str, str] | None) -> None:
        operation.status, operation.ended, operation.error = "DONE", self._now(), error

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        at = self._now() + timedelta(seconds=seconds)
        heapq.heappush(self._due, (at, next(self._numbers), action))

    def _notify(self, instance: Instance, change: Change) -> None:
        for listener in self._listeners:
            listener(instance, change)


def metadata_of(instance: Instance) -> dict[str, str]:
    """Return the metadata of a VM by key."""
    metadata = instance.body.get("metadata")
    items = metadata.get("items") if isinstance(metadata, dict) else None
    values: dict[str, str] = {}
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            values[str(item.get("key"))] = str(item.get("value"))
    return values


def _has_external_ip(body: Json) -> bool:
    interfaces = body.get("networkInterfaces")
    first = interfaces[0] if isinstance(interfaces, list) and interfaces else {}
    return isinstance(first, dict) and bool(first.get("accessConfigs"))
