"""Tests for the driver of Compute Engine over HTTP: the rehearsal cloud, and answers of all kinds."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from argosy.capacity.drivers.gce import GceDriver
from argosy.capacity.drivers.gce_auth import Tokens
from argosy.capacity.join import JoinPlan
from argosy.capacity.machine_record import MachineRecord, MachineSpec
from argosy.capacity.provider import Identity, ObservedMachine, ObservedOperation, Presence, ZoneState
from argosy.capacity.providers.gce import Gce
from argosy.engine.errors import LeaseExpired
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now
from argosy.plan.drivers import Refusal
from argosy.wire.connection import Connection
from argosy.wire.dial import dial
from argosy.wire.messages import Request, Response
from argosy.wire.origin import Origin
from tests.support.clouds.metadata import serving
from tests.support.clouds.strict_gce import StrictGate
from tests.support.spot_instances import CREDENTIALS, IMAGE, JOIN

SECRETS = {"credentials.json": CREDENTIALS, **{f"join/{key}": value for key, value in JOIN.items()}}
SPEC = MachineSpec(project="p", zone="us-central1-a", machine_type="n1-standard-4", image=IMAGE)
RECORD = MachineRecord(name="vm", project="p", zone="us-central1-a", attempt=1)


def allow() -> None: ...


@dataclass
class Stage:
    driver: GceDriver
    cloud: Cloud
    gate: StrictGate

    async def insert(self, name: str = "vm") -> ObservedOperation:
        record = msgspec.structs.replace(RECORD, name=name)
        request = Gce().create(record, SPEC, Identity(f"uid-{name}", "c"), JoinPlan("join"))
        answer = await self.driver.call(request, SECRETS)
        assert isinstance(answer, ObservedOperation)
        return answer

    async def zone(self) -> ZoneState:
        state = await self.driver.fetch("p/us-central1-a", SECRETS)
        assert isinstance(state, ZoneState)
        return state


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    cloud, gate = Cloud(utc_now, Latency(insert=0, boot=0, delete=0)), StrictGate()
    async with GceServer(GceApi(cloud, gate)).serving() as url:
        driver = GceDriver(url, allow, page=2)
        yield Stage(driver, cloud, gate)
        await driver.close()
    assert gate.violations == []


async def test_a_vm_is_created_seen_and_deleted(stage: Stage) -> None:
    operation = await stage.insert()
    assert operation.request_id == RECORD.request_id("uid-vm")
    seen = await stage.driver.call(Gce().find(RECORD), SECRETS)
    assert isinstance(seen, ObservedMachine)
    assert (seen.name, seen.presence, seen.uid, seen.cluster) == ("vm", Presence.RUNNING, "uid-vm", "c")
    await stage.driver.call(Gce().delete(RECORD, "uid-vm"), SECRETS)
    with pytest.raises(Refusal, match="NOT_FOUND"):
        await stage.driver.call(Gce().find(RECORD), SECRETS)


async def test_a_creation_that_is_sent_twice_creates_one_vm(stage: Stage) -> None:
    assert (await stage.insert()).id == (await stage.insert()).id
    assert len(stage.cloud.ever) == 1


async def test_all_pages_of_a_zone_are_read_and_only_new_operations_afterwards(stage: Stage) -> None:
    for number in range(5):
        await stage.insert(f"vm-{number}")
    state = await stage.zone()
    assert len(state.machines) == len(state.operations) == 5
    pages = len(stage.gate.sent.of("zoneOperations.list"))
    assert (await stage.zone()).operations.keys() == state.operations.keys()
    assert pages == 3
    stage.cloud.preempt("p", "us-central1-a", "vm-3")
    kinds = [each.kind.value for each in (await stage.zone()).operations["vm-3"]]
    assert kinds == ["Insert", "Preempted"]


async def test_without_the_lease_nothing_is_changed_and_reading_goes_on(stage: Stage) -> None:
    def expired() -> None:
        raise LeaseExpired()

    stage.driver._check_lease = expired
    with pytest.raises(LeaseExpired):
        await stage.insert()
    assert stage.gate.sent.inserts == []
    assert (await stage.zone()).machines == {}


async def test_lease_that_expires_while_the_driver_connects_stops_the_creation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[Connection] = []

    async def slow_dial(origin: Origin, context: ssl.SSLContext | None) -> Connection:
        connections.append(await dial(origin, context))
        return connections[-1]

    def check_lease() -> None:
        if connections:
            raise LeaseExpired()

    monkeypatch.setattr("argosy.wire.client.dial", slow_dial)
    stage.driver._check_lease = check_lease
    with pytest.raises(LeaseExpired):
        await stage.insert()
    assert len(connections) == 1
    assert stage.gate.sent.requests == []


async def test_join_data_that_has_become_incomplete_sends_nothing(stage: Stage) -> None:
    request = Gce().create(RECORD, SPEC, Identity("u"), JoinPlan("join"))
    with pytest.raises(Refusal, match="JOIN_DATA_MISSING"):
        await stage.driver.call(request, {"credentials.json": CREDENTIALS})
    assert stage.gate.sent.requests == []


BAD_CREDENTIALS = {
    "no key": {},
    "not JSON": {"credentials.json": b"\xff"},
    "a list": {"credentials.json": b"[]"},
    "an account of another kind, which may name URLs and programs": {
        "credentials.json": b'{"type": "external_account", "credential_source": {"url": "http://169.254.169.254"}}'
    },
}


@pytest.mark.parametrize("credentials", BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS.keys())
async def test_credentials_that_are_none_are_refused(stage: Stage, credentials: dict[str, bytes]) -> None:
    with pytest.raises(Refusal, match="INVALID_CREDENTIALS"):
        await stage.driver.fetch("p/us-central1-a", credentials)
    assert stage.gate.sent.requests == []


def error(status: int, reason: str) -> tuple[int, bytes]:
    body = {"error": {"code": status, "message": "text", "errors": [{"reason": reason}]}}
    return status, msgspec.json.encode(body)


ANSWERS: dict[str, tuple[tuple[int, bytes], str]] = {
    # Status and body, and the code of the refusal; empty: it counts as no answer.
    "401": (error(401, "authError"), "INVALID_CREDENTIALS"),
    "403": (error(403, "forbidden"), "PERMISSION_DENIED"),
    "403 for a quota": (error(403, "quotaExceeded"), "QUOTA_EXCEEDED"),
    "403 for the rate of requests": (error(403, "rateLimitExceeded"), ""),
    "404": (error(404, "notFound"), "NOT_FOUND"),
    "400": (error(400, "invalid"), "INVALID_REQUEST"),
    "412": (error(412, "conditionNotMet"), "INVALID_REQUEST"),
    "409": (error(409, "alreadyExists"), "ALREADY_EXISTS"),
    "409 because it is not ready": (error(409, "resourceNotReady"), ""),
    "429": (error(429, "rateLimitExceeded"), ""),
    "500": (error(500, "backendError"), ""),
    "404 with HTML": ((404, b"<html>"), "NOT_FOUND"),
    "200 with HTML": ((200, b"<html>"), ""),
    "200 with a list": ((200, b"[]"), ""),
    "502 that is not text": ((502, b"\xff\xfe"), ""),
}


@pytest.mark.parametrize(("answer", "code"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_an_answer_means(answer: tuple[int, bytes], code: str) -> None:
    async def handle(request: Request) -> Response:
        return Response(answer[1], status=answer[0])

    async with serving(handle) as url:
        driver = GceDriver(url, allow)
        try:
            if code:
                with pytest.raises(Refusal) as refusal:
                    await driver.call(Gce().find(RECORD), SECRETS)
                assert refusal.value.code == code
            else:
                with pytest.raises(ConnectionError):
                    await driver.call(Gce().find(RECORD), SECRETS)
        finally:
            await driver.close()


async def test_a_token_is_signed_here_and_no_url_of_the_credentials_is_used() -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {
        "type": "service_account",
        "client_email": "robot@p.example.com",
        "private_key": pem.decode(),
        "private_key_id": "1",
        "token_uri": "http://169.254.169.254/computeMetadata",
    }
    tokens, content = Tokens(), {"credentials.json": msgspec.json.encode(info)}
    token = await tokens.token(content)
    assert await tokens.token(content) == token
    from google.auth import jwt

    claims = jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]
    assert claims["iss"] == "robot@p.example.com"
    assert claims["exp"] > datetime.now(UTC).timestamp()
