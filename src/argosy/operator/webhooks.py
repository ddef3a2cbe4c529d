"""Answers admission reviews of the API server, and keeps the CA bundle of our webhook configurations current.

The chart creates the webhook configurations without a CA bundle, because only the operator knows its CA. The
leader adds it, and adds it again when it is lost or the CA changes. Until then the API server rejects the
objects that it should have asked about, or with the failure policy Ignore accepts them as they are.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from argosy.engine.client import Client, PatchType
from argosy.engine.errors import ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.meta import Json
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from argosy.operator.bounds import OnRejected
from argosy.wire.messages import HttpError, Request, Response, TooLargeError

log = Logger(__name__)

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""As much as the API server accepts of an object."""
MAX_REVIEWS: Final = 4
"""Reviews of one webhook whose bodies are received and judged at once."""
MAX_WAITING: Final = 64
"""Further reviews of one webhook that wait for that, with their bodies unread."""
BODY_SECONDS: Final = 5.0
CHECK_INTERVAL_SECONDS: Final = 30.0
Configuration = TypeVar("Configuration", MutatingWebhookConfiguration, ValidatingWebhookConfiguration)


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """What the API server asks about: an object to be stored, and the one that it replaces."""

    uid: str
    object: msgspec.Raw
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    namespace: str = ""


class _Review(Struct, frozen=True):
    request: AdmissionRequest


Review = Callable[[AdmissionRequest], Awaitable[Json]]
"""Returns the response of an AdmissionReview, without its uid. What takes long to compute is computed in a
thread, so that the rest of the operator is not delayed."""


def in_thread(review: Callable[[AdmissionRequest], Json]) -> Review:
    """Return a review that only computes, as one that does so in a thread."""

    async def run(request: AdmissionRequest) -> Json:
        return await asyncio.to_thread(review, request)

    return run


def patch_response(patch: Sequence[Mapping[str, object]]) -> Json:
    """Return the response that accepts an object with a JSON patch."""
    text = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


class _Queue:
    """The reviews of one webhook: a few are in progress, some more wait."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self.slots = asyncio.Semaphore(MAX_REVIEWS)
        self.in_flight = 0


class Reviewer:
    """Answers admission reviews within limits.

    Kubernetes does not authenticate itself to webhooks unless configured to, so anyone who reaches the port
    may ask. A few bodies of each webhook are received and judged at a time. Some more reviews wait for their
    turn with their bodies unread; all others are rejected. Webhooks have limits of their own, so that many
    pods do not delay the writes of jobs.
    """

    def __init__(self, reviews: Mapping[str, Review], on_rejected: OnRejected = lambda _reason: None) -> None:
        self._queues = {path: _Queue(review) for path, review in reviews.items()}
        self._on_rejected = on_rejected

    def serves(self, request: Request) -> bool:
        return request.method == "POST" and request.path in self._queues

    def in_flight(self, path: str) -> int:
        """Return how many reviews of a webhook are in progress or wait."""
        return self._queues[path].in_flight

    async def handle(self, request: Request) -> Response:
        queue = self._queues[request.path]
        if queue.in_flight >= MAX_REVIEWS + MAX_WAITING:
            self._on_rejected("webhook-busy")
            raise HttpError(429, f"too many reviews in progress ({queue.in_flight}); try again later")
        queue.in_flight += 1
        try:
            async with queue.slots:
                return await _answer(await self._body(request), queue.review)
        finally:
            queue.in_flight -= 1

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


async def _answer(body: bytes, review: Review) -> Response:
    try:
        request = (await asyncio.to_thread(msgspec.json.decode, body, type=_Review)).request
        response = {"uid": request.uid, **await review(request)}
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
    """Write the CA into every webhook of the configurations that has another one.

    There is a configuration for each type of webhook that the served APIs have.
    """
    bundle = base64.b64encode(ca.encode()).decode()
    mutating = await _patch_ca_bundle(client, MutatingWebhookConfiguration, name, bundle)
    validating = await _patch_ca_bundle(client, ValidatingWebhookConfiguration, name, bundle)
    if not (mutating or validating):
        log.warning("no webhook configuration found", name=name)


async def _patch_ca_bundle(client: Client, kind: type[Configuration], name: str, bundle: str) -> bool:
    """Return False if there is no such configuration."""
    try:
        configuration = await client.get(kind, name)
    except NotFound:
        return False
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.webhooks)
        if webhook.client_config.ca_bundle != bundle
    ]
    if operations:
        await client.patch(kind, name, operations, type=PatchType.JSON)
        log.info("webhook CA bundle injected", kind=kind.resource.kind, name=name)
    return True
