"""Answers admission reviews of the API server, and keeps the CA bundle of our webhook configurations current.

The chart creates the two webhook configurations without a CA bundle, because only the operator knows its CA.
The leader adds it, and adds it again when it is lost or the CA changes. Until then the API server rejects the
objects that it should have asked about.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from argosy.engine.client import Client, PatchType
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.kinds.meta import Json
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from argosy.operator.bounds import OnRejected
from argosy.wire.messages import HttpError, Request, Response, TooLargeError

log = Logger(__name__)

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""As much as the API server accepts of an object."""
MAX_REVIEWS: Final = 4
"""Reviews whose bodies are received and judged at once."""
MAX_WAITING: Final = 64
"""Further reviews that wait for that, with their bodies unread."""
BODY_SECONDS: Final = 5.0
CHECK_INTERVAL_SECONDS: Final = 30.0
Configuration = TypeVar("Configuration", MutatingWebhookConfiguration, ValidatingWebhookConfiguration)


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """What the API server asks about: an object to be stored, and the one that it replaces."""

    uid: str
    object: msgspec.Raw
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(Struct, frozen=True):
    request: AdmissionRequest


Review = Callable[[AdmissionRequest], Json]
"""Returns the response of an AdmissionReview, without its uid."""


class Reviewer:
    """Answers admission reviews within limits.

    Kubernetes does not authenticate itself to webhooks unless configured to, so anyone who reaches the port
    may ask. A few bodies at a time are received, and judged in a thread, so that the rest of the operator is
    not delayed. Some more reviews wait for their turn with their bodies unread; all others are rejected.
    """

    def __init__(self, reviews: Mapping[str, Review], on_rejected: OnRejected = lambda _reason: None) -> None:
        self._reviews = reviews
        self._on_rejected = on_rejected
        self._slots = asyncio.Semaphore(MAX_REVIEWS)
        self._in_flight = 0

    def serves(self, request: Request) -> bool:
        return request.method == "POST" and request.path in self._reviews

    async def handle(self, request: Request) -> Response:
        if self._in_flight >= MAX_REVIEWS + MAX_WAITING:
            self._on_rejected("webhook-busy")
            raise HttpError(429, f"too many reviews in progress ({self._in_flight}); try again later")
        self._in_flight += 1
        try:
            async with self._slots:
                body = await self._body(request)
                return await asyncio.to_thread(_review, body, self._reviews[request.path])
        finally:
            self._in_flight -= 1

    async def _body(self, request: Request) -> bytes:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await request.body(MAX_BODY_BYTES)
        except TooLargeError as error:
            self._on_rejected("too-large")
            raise HttpError(413, str(error)) from None
        except TimeoutError:
            self._on_rejected("webhook-slow")
            raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None


def _review(body: bytes, review: Review) -> Response:
    try:
        request = msgspec.json.decode(body, type=_Review).request
        response = {"uid": request.uid, **review(request)}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HttpError(400, str(error)) from None
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return Response(msgspec.json.encode(answer))


async def keep_ca_injected(client: Client, name: str, ca: Callable[[], str]) -> None:
    """Keep the CA bundle of the configurations of this name current until cancelled."""
    while True:
        try:
            await inject_ca(client, name, ca())
        except ApiError as error:
            log.warning("webhook CA bundle not injected; retrying", error=str(error))
        await asyncio.sleep(CHECK_INTERVAL_SECONDS)


async def inject_ca(client: Client, name: str, ca: str) -> None:
    """Write the CA into every webhook of the two configurations that has another one."""
    bundle = base64.b64encode(ca.encode()).decode()
    await _patch_ca_bundle(client, MutatingWebhookConfiguration, name, bundle)
    await _patch_ca_bundle(client, ValidatingWebhookConfiguration, name, bundle)


async def _patch_ca_bundle(client: Client, kind: type[Configuration], name: str, bundle: str) -> None:
    configuration = await client.get(kind, name)
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.webhooks)
        if webhook.client_config.ca_bundle != bundle
    ]
    if operations:
        await client.patch(kind, name, operations, type=PatchType.JSON)
        log.info("webhook CA bundle injected", kind=kind.resource.kind, name=name)
