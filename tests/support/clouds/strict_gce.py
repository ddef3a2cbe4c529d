"""Checks every request to the rehearsal cloud by the published description of the API, and injects faults.

Every field of a new instance is listed here with its type and its values; one that is not listed fails the
test.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from argosy.local.gce.api import ApiRequest
from argosy.local.gce.cloud import CloudError

ROLES = {
    "roles/compute.instanceAdmin.v1": {
        "compute.instances.create",
        "compute.instances.delete",
        "compute.instances.get",
        "compute.instances.list",
        "compute.zoneOperations.get",
        "compute.zoneOperations.list",
    },
}
"""The permissions of roles, as far as the cloud serves them."""

NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
LABEL = r"[a-z0-9_-]{0,63}"
ZONE = r"[a-z]+-[a-z]+[0-9]-[a-z]"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"

QUERY = {
    "compute.instances.list": {"maxResults", "pageToken", "fields"},
    "compute.zoneOperations.list": {"maxResults", "pageToken", "fields", "orderBy"},
    "compute.instances.create": {"requestId"},
    "compute.instances.delete": {"requestId"},
    "compute.instances.get": set(),
}


@dataclass
class Sent:
    """Requests, for a test to look at."""

    requests: list[ApiRequest] = field(default_factory=list)

    def of(self, permission: str) -> list[ApiRequest]:
        return [each for each in self.requests if each.permission == f"compute.{permission}"]

    @property
    def inserts(self) -> list[ApiRequest]:
        return self.of("instances.create")


Fault = Callable[[ApiRequest], None]


@dataclass
class StrictGate:
    """Refuses what the API would refuse, and what breaks a rule of the operator."""

    permissions: set[str] = field(default_factory=lambda: set(ROLES["roles/compute.instanceAdmin.v1"]))
    is_recorded: Callable[[ApiRequest], bool] = lambda _request: True
    """Whether the name of a new instance is in a stored Record at this moment."""
    sent: Sent = field(default_factory=Sent)
    before_faults: list[Fault] = field(default_factory=list)
    after_faults: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """What no operator may do; a test fails if there is any."""

    def before(self, request: ApiRequest) -> None:
        self.sent.requests.append(request)
        for fault in tuple(self.before_faults):
            fault(request)
        if request.permission not in self.permissions:
            where = f"projects/{request.project}/zones/{request.zone}/instances/{request.name}"
            text = f"Required '{request.permission}' permission for '{where}'"
            raise CloudError(403, "forbidden", text)
        for problem in check_request(request):
            self._violated(f"{request.permission}: {problem}")
            raise CloudError(400, "invalid", f"Invalid value for field '{problem}'")
        if request.permission == "compute.instances.create" and not self.is_recorded(request):
            self._violated(f"{request.body.get('name')}: inserted, but in no Record")
            raise CloudError(400, "invalid", "not recorded")

    def after(self, request: ApiRequest) -> None:
        for fault in tuple(self.after_faults):
            fault(request)

    def _violated(self, text: str) -> None:
        self.violations.append(text)


def check_request(request: ApiRequest) -> list[str]:
    """Return what is wrong with a request, by field."""
    allowed = QUERY.get(request.permission, set())
    problems = [f"query {name}: unknown" for name in request.query if name not in allowed]
    if "requestId" in allowed:
        problems += _check_uuid(request.query.get("requestId", ""))
    if request.permission == "compute.instances.create":
        problems += check_instance(request.body, request.zone)
    return problems


def _check_uuid(text: str) -> list[str]:
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return [f"requestId: {text!r} is no UUID"]
    return ["requestId: must not be zero"] if parsed.int == 0 else []


def check_instance(body: Mapping[str, object], zone: str) -> list[str]:
    """Return what is wrong with the body of a new instance."""
    problems: list[str] = []
    _check(body, _instance_fields(zone), "instance", problems)
    scheduling = body.get("scheduling")
    if isinstance(scheduling, dict):
        spot = scheduling.get("provisioningModel") == "SPOT"
        if spot is not scheduling.get("preemptible"):
            problems.append("scheduling.preemptible: must fit provisioningModel")
        if not spot and "instanceTerminationAction" in scheduling:
            problems.append("scheduling.instanceTerminationAction: only for spot")
    return problems


Checker = Callable[[object, str, list[str]], None]


def _instance_fields(zone: str) -> dict[str, Checker]:
    place = f"zones/{re.escape(zone)}"
    return {
        "name": text(NAME),
        "machineType": text(f"{place}/machineTypes/[a-z0-9-]+"),
        "scheduling": fields(
            {
                "provisioningModel": text("SPOT|STANDARD"),
                "preemptible": boolean,
                "instanceTerminationAction?": text("DELETE|STOP"),
                "automaticRestart": boolean,
                "onHostMaintenance": text("TERMINATE|MIGRATE"),
            }
        ),
        "disks": items(
            fields(
                {
                    "boot": boolean,
                    "autoDelete": boolean,
                    "initializeParams": fields(
                        {
                            "sourceImage": text(".+"),
                            "diskSizeGb": text("[1-9][0-9]*"),
                            "diskType": text(f"{place}/diskTypes/[a-z0-9-]+"),
                        }
                    ),
                }
            )
        ),
        "networkInterfaces": items(
            fields({"accessConfigs?": items(fields({"name": text(".+"), "type": text("ONE_TO_ONE_NAT")}))})
        ),
        "guestAccelerators?": items(
            fields(
                {"acceleratorCount": number, "acceleratorType": text(f"{place}/acceleratorTypes/[a-z0-9-]+")}
            )
        ),
        "metadata": fields(
            {"items": items(fields({"key": text("[a-zA-Z0-9-_]+"), "value": text("(?s).*")}))}
        ),
        "labels": mapping(r"[a-z][a-z0-9_-]{0,62}", LABEL),
        "tags?": fields({"items": items(text(NAME))}),
        "serviceAccounts?": items(fields({"email": text(".+@.+"), "scopes": items(text(re.escape(SCOPE)))})),
    }


def _check(value: object, wanted: Mapping[str, Checker], path: str, problems: list[str]) -> None:
    if not isinstance(value, dict):
        problems.append(f"{path}: must be an object")
        return
    known = {name.rstrip("?"): name for name in wanted}
    problems += [f"{path}.{name}: unknown" for name in value if name not in known]
    for name, key in known.items():
        if name in value:
            wanted[key](value[name], f"{path}.{name}", problems)
        elif not key.endswith("?"):
            problems.append(f"{path}.{name}: missing")


def fields(wanted: Mapping[str, Checker]) -> Checker:
    return lambda value, path, problems: _check(value, wanted, path, problems)


def text(pattern: str) -> Checker:
    def check(value: object, path: str, problems: list[str]) -> None:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            problems.append(f"{path}: {value!r} is not {pattern}")

    return check


def boolean(value: object, path: str, problems: list[str]) -> None:
    if not isinstance(value, bool):
        problems.append(f"{path}: {value!r} is no boolean")


def number(value: object, path: str, problems: list[str]) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        problems.append(f"{path}: {value!r} is no number")


def items(check: Checker) -> Checker:
    def check_items(value: object, path: str, problems: list[str]) -> None:
        if not isinstance(value, list):
            problems.append(f"{path}: must be a list")
            return
        for index, each in enumerate(value):
            check(each, f"{path}[{index}]", problems)

    return check_items


def mapping(key: str, value_pattern: str) -> Checker:
    def check(value: object, path: str, problems: list[str]) -> None:
        if not isinstance(value, dict):
            problems.append(f"{path}: must be an object")
            return
        for name, each in value.items():
            fits = isinstance(each, str) and re.fullmatch(value_pattern, each)
            if not fits or not re.fullmatch(key, name):
                problems.append(f"{path}: {name}={each!r} is not allowed")

    return check
