"""The part of Compute Engine's REST API that the rehearsal cloud serves, as a function of requests.

| request | what it does |
|---|---|
| `GET`, `POST` `.../zones/Z/instances` | lists and creates VMs |
| `GET`, `DELETE` `.../instances/NAME` | one VM |
| `POST` `.../instances/NAME/stop`, `.../simulateMaintenanceEvent` | stops a VM; takes a spot VM back |
| `GET` `.../zones/Z/operations`, `.../operations/NAME` | operations |
| `GET` `.../zones/Z/machineTypes`, `.../machineTypes/NAME` | machine types |

A `Gate` may refuse a request, or lose the answer: tests use it to check requests and to inject faults.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec import Struct, field

from argosy.local.gce.cloud import Cloud, CloudError, Instance, Json, Operation

ROOT = "https://www.googleapis.com/compute/v1"

PERMISSIONS = {
    ("GET", "instances", ""): "compute.instances.list",
    ("POST", "instances", ""): "compute.instances.create",
    ("GET", "instances", "NAME"): "compute.instances.get",
    ("DELETE", "instances", "NAME"): "compute.instances.delete",
    ("POST", "instances", "stop"): "compute.instances.stop",
    ("POST", "instances", "simulateMaintenanceEvent"): "compute.instances.simulateMaintenanceEvent",
    ("GET", "operations", ""): "compute.zoneOperations.list",
    ("GET", "operations", "NAME"): "compute.zoneOperations.get",
    ("GET", "machineTypes", ""): "compute.machineTypes.list",
    ("GET", "machineTypes", "NAME"): "compute.machineTypes.get",
}
"""The permission that each request needs."""

MAX_PAGE = 500


class ApiRequest(Struct, frozen=True):
    """A parsed request of the API."""

    method: str
    permission: str
    project: str
    zone: str
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)
    authorization: str = ""


class Gate(Protocol):
    """Decides about requests before and after they are done."""

    def before(self, request: ApiRequest) -> None:
        """Raise `CloudError` to refuse a request, or `ConnectionError` to leave it undone and unanswered."""

    def after(self, request: ApiRequest) -> None:
        """Raise `ConnectionError` to lose the answer of a request that was done."""


class OpenGate:
    """Lets everything pass."""

    def before(self, request: ApiRequest) -> None: ...
    def after(self, request: ApiRequest) -> None: ...


class GceApi:
    def __init__(
        self, cloud: Cloud, gate: Gate | None = None, machine_types: Mapping[str, Json] | None = None
    ) -> None:
        self.cloud = cloud
        self.gate: Gate = gate or OpenGate()
        self.machine_types = dict(machine_types or MACHINE_TYPES)

    def handle(
        self, method: str, target: str, body: bytes | None = None, authorization: str = ""
    ) -> tuple[int, bytes]:
        """Answer a request with a status and JSON. A `ConnectionError` means that it gets no answer."""
        try:
            answer = self._handle(method, target, body, authorization)
        except CloudError as error:
            return error.status, msgspec.json.encode(_error(error))
        return 200, msgspec.json.encode(answer)

    def _handle(self, method: str, target: str, body: bytes | None, authorization: str) -> Json:
        path, _, query = target.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["compute", "v1", "projects", project, "zones", zone, collection]:
                name, verb = "", ""
            case ["compute", "v1", "projects", project, "zones", zone, collection, name]:
                verb = "NAME"
            case ["compute", "v1", "projects", project, "zones", zone, collection, name, verb]:
                pass
            case _:
                raise CloudError(404, "notFound", f"{method} {path} is not served here")
        permission = PERMISSIONS.get((method, collection, verb))
        if permission is None:
            raise CloudError(404, "notFound", f"{method} {path} is not served here")
        parameters = {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()}
        request = ApiRequest(
            method,
            permission,
            project,
            zone,
            name,
            parameters,
            _decode(body),
            authorization,
        )
        self.cloud.advance()
        self.gate.before(request)
        answer = self._do(request)
        self.gate.after(request)
        return answer

    def _do(self, request: ApiRequest) -> Json:
        cloud, project, zone, name = self.cloud, request.project, request.zone, request.name
        request_id = request.query.get("requestId", "")
        match request.permission:
            case "compute.instances.list":
                instances = [
                    instance
                    for instance in cloud.instances.values()
                    if (instance.project, instance.zone) == (project, zone)
                ]
                items = [show_instance(item) for item in sorted(instances, key=lambda item: item.name)]
                return _page(items, request.query, "compute#instanceList")
            case "compute.instances.get":
                return show_instance(cloud.find(project, zone, name))
            case "compute.instances.create":
                return show_operation(cloud.insert(project, zone, request.body, request_id))
            case "compute.instances.delete":
                return show_operation(cloud.delete(project, zone, name, request_id))
            case "compute.instances.stop":
                return show_operation(cloud.stop(project, zone, name, request_id, user="user@example.com"))
            case "compute.instances.simulateMaintenanceEvent":
                return show_operation(cloud.preempt(project, zone, name))
            case "compute.zoneOperations.list":
                return _page(self._operations(request), request.query, "compute#operationList")
            case "compute.zoneOperations.get":
                return show_operation(self._operation(request))
            case "compute.machineTypes.list":
                types = [{"name": key, **value} for key, value in sorted(self.machine_types.items())]
                return _page(types, request.query, "compute#machineTypeList")
        if name not in self.machine_types:
            raise CloudError(404, "notFound", f"The resource 'machineTypes/{name}' was not found")
        return {"kind": "compute#machineType", "name": name, **self.machine_types[name]}

    def _operations(self, request: ApiRequest) -> list[Json]:
        operations = [
            operation
            for operation in self.cloud.operations.values()
            if (operation.project, operation.zone) == (request.project, request.zone)
        ]
        newest_first = request.query.get("orderBy") == "creationTimestamp desc"
        operations.sort(key=lambda operation: int(operation.id), reverse=newest_first)
        return [show_operation(operation) for operation in operations]

    def _operation(self, request: ApiRequest) -> Operation:
        operation = self.cloud.operations.get(request.name)
        if operation is None or (operation.project, operation.zone) != (request.project, request.zone):
            raise CloudError(404, "notFound", f"The resource 'operations/{request.name}' was not found")
        return operation


MACHINE_TYPES: Mapping[str, Json] = {
    "n1-standard-4": {"guestCpus": 4, "memoryMb": 15360, "maximumPersistentDisks": 128},
    "n1-standard-8": {"guestCpus": 8, "memoryMb": 30720, "maximumPersistentDisks": 128},
    "g2-standard-4": {"guestCpus": 4, "memoryMb": 16384, "maximumPersistentDisks": 128},
    "e2-standard-4": {"guestCpus": 4, "memoryMb": 16384, "maximumPersistentDisks": 128},
}


def show_instance(instance: Instance) -> Json:
    """Return a VM as the API shows it."""
    network: dict[str, object] = {"name": "nic0", "networkIP": instance.internal_ip}
    if instance.external_ip:
        network["accessConfigs"] = [{"name": "External NAT", "natIP": instance.external_ip}]
    zone = f"{ROOT}/projects/{instance.project}/zones/{instance.zone}"
    return {
        **instance.body,
        "kind": "compute#instance",
        "id": instance.id,
        "zone": zone,
        "status": instance.status,
        "selfLink": f"{zone}/instances/{instance.name}",
        "creationTimestamp": _time(instance.created),
        "networkInterfaces": [network],
    }


def show_operation(operation: Operation) -> Json:
    """Return an operation as the API shows it."""
    zone = f"{ROOT}/projects/{operation.project}/zones/{operation.zone}"
    shown: dict[str, object] = {
        "kind": "compute#operation",
        "id": operation.id,
        "name": operation.name,
        "zone": zone,
        "operationType": operation.type,
        "targetLink": f"{zone}/instances/{operation.target}",
        "status": operation.status,
        "user": operation.user,
        "insertTime": _time(operation.inserted),
    }
    if operation.request_id:
        shown["clientOperationId"] = operation.request_id
    if operation.ended is not None:
        shown["endTime"] = _time(operation.ended)
    if operation.error is not None:
        code, message = operation.error
        shown["error"] = {"errors": [{"code": code, "message": message}]}
    return shown


def _page(items: Sequence[Json], query: Mapping[str, str], kind: str) -> Json:
    start = int(query.get("pageToken") or 0)
    size = min(int(query.get("maxResults") or MAX_PAGE), MAX_PAGE)
    answer: dict[str, object] = {"kind": kind}
    if page := items[start : start + size]:
        answer["items"] = list(page)
    if start + size < len(items):
        answer["nextPageToken"] = str(start + size)
    return answer


def _decode(body: bytes | None) -> Json:
    if not body:
        return {}
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise CloudError(400, "parseError", f"Parse Error: {error}") from None
    if not isinstance(decoded, dict):
        raise CloudError(400, "parseError", "the body must be a JSON object")
    return decoded


def _error(error: CloudError) -> Json:
    item = {"message": error.message, "domain": "global", "reason": error.reason}
    return {"error": {"code": error.status, "message": error.message, "errors": [item]}}


def _time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")
