"""Tests for calls outside of Kubernetes: which Secrets they may use, and what their answers become."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.errors import LeaseExpired, NotFound, Unavailable
from argosy.kinds import labels
from argosy.kinds.kubernetes import Secret
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import Call, CallResult, CallStatus, SecretRef
from argosy.plan.contract import View
from argosy.plan.drivers import Credentials, Refusal, SecretContent, secret_view
from argosy.reconcile.drivers import Drivers, NoCredentialsError

pytestmark = pytest.mark.looptime


class Ask(Struct, frozen=True):
    text: str = ""


class Answer(Struct, frozen=True):
    credentials: Mapping[str, bytes]


@dataclass
class FakeClient:
    """An API server with Secrets."""

    secrets: dict[tuple[str, str], Secret] = field(default_factory=dict)
    expired: bool = False

    def add(self, namespace: str, name: str, allowed: str | None = None, **data: str) -> None:
        annotations = {} if allowed is None else {labels.ALLOWED_NAMESPACES: allowed}
        meta = ObjectMeta(name=name, namespace=namespace, annotations=annotations)
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        self.secrets[namespace, name] = Secret(meta, encoded)

    async def get(self, kind: type[Secret], name: str, namespace: str) -> Secret:
        if (namespace, name) not in self.secrets:
            raise NotFound(404, "NotFound", "")
        return self.secrets[namespace, name]

    def check_lease(self) -> None:
        if self.expired:
            raise LeaseExpired()


@dataclass
class FakeDriver:
    error: Exception | None = None
    hangs: bool = False
    calls: int = 0

    async def call(self, request: Struct, credentials: Credentials) -> Struct:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return Answer(credentials)

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        return await self.call(Ask(), credentials)


@dataclass
class Stage:
    client: FakeClient = field(default_factory=FakeClient)
    driver: FakeDriver = field(default_factory=FakeDriver)

    def __post_init__(self) -> None:
        self.drivers = Drivers(cast("Client", self.client))
        self.drivers.add({"fake": self.driver})

    async def run(self, credentials: SecretRef | None = None, **secrets: SecretRef) -> CallResult:
        return await self.drivers.run("home", Call("k", "fake", Ask(), credentials, secrets))


NOT_FOUND = "secret home/key not found"
NOT_SHARED = (
    "secret bank/key not found, or not shared with namespace home by its annotation"
    f" {labels.ALLOWED_NAMESPACES}"
)
POLICY: dict[str, tuple[str, str | None, SecretRef, str]] = {
    # Namespace and annotation of the only Secret, the reference of an object in `home`, and the problem.
    "own namespace, not named: used": ("home", None, SecretRef("key"), ""),
    "own namespace, named: used": ("home", None, SecretRef("key", "home"), ""),
    "missing: said by name": ("elsewhere", None, SecretRef("key"), NOT_FOUND),
    "other namespace without annotation: not used": ("bank", None, SecretRef("key", "bank"), NOT_SHARED),
    "other namespace shared with others: not used": (
        "bank",
        "homes, hom",
        SecretRef("key", "bank"),
        NOT_SHARED,
    ),
    "other namespace, missing: the same answer": ("elsewhere", "*", SecretRef("key", "bank"), NOT_SHARED),
    "other namespace that shares with this one: used": ("bank", "a, home", SecretRef("key", "bank"), ""),
    "other namespace that shares with all: used": ("bank", "*", SecretRef("key", "bank"), ""),
}


@pytest.mark.parametrize(("namespace", "allowed", "ref", "problem"), POLICY.values(), ids=POLICY.keys())
async def test_which_secrets_an_object_may_use(
    namespace: str, allowed: str | None, ref: SecretRef, problem: str
) -> None:
    stage = Stage()
    stage.client.add(namespace, "key", allowed, password="x")
    result = await stage.run(ref)
    view = View("fake", "", 10, ref)
    if problem:
        assert result == CallResult("k", CallStatus.NO_CREDENTIALS, message=problem)
        with pytest.raises(NoCredentialsError, match="not found"):
            await stage.drivers.fetch("home", view)
        assert stage.driver.calls == 0
    else:
        want = Answer({"password": b"x"})
        assert result == CallResult("k", value=want)
        assert await stage.drivers.fetch("home", view) == want


async def test_further_secrets_are_found_under_their_role_and_follow_the_same_rule() -> None:
    stage = Stage()
    stage.client.add("home", "key", user="a")
    stage.client.add("home", "join", token="t")
    result = await stage.run(SecretRef("key"), join=SecretRef("join"))
    assert result.value == Answer({"user": b"a", "join/token": b"t"})
    result = await stage.run(SecretRef("key"), join=SecretRef("join", "kube-system"))
    assert (result.status, result.value) == (CallStatus.NO_CREDENTIALS, None)


FAILURES: dict[str, tuple[Exception, CallResult]] = {
    "a refusal: its code and message": (
        Refusal("QUOTA_EXCEEDED", "no more", Answer({})),
        CallResult("k", CallStatus.REFUSED, Answer({}), "QUOTA_EXCEEDED", "no more"),
    ),
    "no connection: unavailable": (
        ConnectionRefusedError("refused"),
        CallResult("k", CallStatus.UNAVAILABLE, message="fake: refused"),
    ),
    "an API server that is down: unavailable": (
        Unavailable(503, "Unavailable", "starting"),
        CallResult("k", CallStatus.UNAVAILABLE, message="starting"),
    ),
}


@pytest.mark.parametrize(("error", "want"), FAILURES.values(), ids=FAILURES.keys())
async def test_what_a_failed_call_becomes(error: Exception, want: CallResult) -> None:
    assert await Stage(driver=FakeDriver(error)).run() == want


async def test_a_call_that_is_not_answered_ends_after_its_time_limit() -> None:
    result = await Stage(driver=FakeDriver(hangs=True)).run()
    assert result == CallResult("k", CallStatus.UNAVAILABLE, message="fake: no answer within 30 s")


async def test_nothing_is_sent_once_the_lease_has_expired() -> None:
    stage = Stage(FakeClient(expired=True))
    with pytest.raises(LeaseExpired):
        await stage.run()
    assert stage.driver.calls == 0


async def test_an_unknown_driver_is_a_refusal() -> None:
    result = await Stage().drivers.run("home", Call("k", "other", Ask()))
    assert (result.status, result.code) == (CallStatus.REFUSED, "UnknownDriver")


async def test_the_content_of_a_secret_can_be_seen_and_is_not_shown_in_messages() -> None:
    stage = Stage()
    stage.client.add("home", "key", password="open sesame")
    value = await stage.drivers.fetch("home", secret_view(SecretRef("key")))
    assert value == SecretContent({"password": b"open sesame"})
    assert "sesame" not in repr(value)
