"""Admission webhooks: asked by the API server before an object is stored, where it was told to ask.

The chart tells it, and leaves out by which authority our certificate is to be known: only we know that. So
the leader writes it into those two configurations, and again should it get lost or change, and needs no other
right over them. Until then the API server refuses what it was to ask about.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from argosy.dialects.ares import admission
from argosy.engine.client import Client, PatchType
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from argosy.operator.bounds import OnRefused
from argosy.wire.messages import HttpError, Request, Response, TooLargeError
from argosy.workload.model import Json

log = Logger(__name__)

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""Bytes of a question: as much as the API server itself takes of an object."""
MAX_REVIEWS: Final = 4
"""Questions whose bodies are received and judged at once."""
MAX_WAITING: Final = 64
"""Questions that wait for that, of whose bodies nothing is read yet."""
BODY_SECONDS: Final = 5.0
CHECK_INTERVAL_SECONDS: Final = 30.0
Configuration = TypeVar("Configuration", MutatingWebhookConfiguration, ValidatingWebhookConfiguration)


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """What the API server asks about."""

    uid: str
    object: admission.SubmittedJob
    old_object: admission.SubmittedJob | None = None


class _Review(Struct, frozen=True):
    request: AdmissionRequest


Review = Callable[[AdmissionRequest], Json]


def _mutate(asked: AdmissionRequest) -> Json:
    patch = admission.default_patch(asked.object)
    if not patch:
        return {"allowed": True}
    return {"allowed": True, "patchType": "JSONPatch", "patch": _text(msgspec.json.encode(patch))}


def _validate(asked: AdmissionRequest) -> Json:
    found = admission.problems(asked.object, asked.old_object)
    if found is None:
        return {"allowed": True}
    return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": str(found)}}


ARES: Final[Mapping[str, Review]] = {
    "/mutate-ares-io-v1-aresjob": _mutate,
    "/validate-ares-io-v1-aresjob": _validate,
}


class Reviewer:
    """Answers questions of the API server within bounds.

    Kubernetes does not say who asks unless it is configured to, so anybody who reaches the port may. A few
    bodies at a time are received, and judged in a thread, so that the rest of the operator goes on; some more
    wait for their turn with their bodies unread, and others are refused.
    """

    def __init__(self, reviews: Mapping[str, Review], on_refused: OnRefused = lambda _reason: None) -> None:
        self._reviews = reviews
        self._on_refused = on_refused
        self._slots = asyncio.Semaphore(MAX_REVIEWS)
        self._in_flight = 0

    def answers(self, request: Request) -> bool:
        return request.method == "POST" and request.path in self._reviews

    async def answer(self, request: Request) -> Response:
        if self._in_flight >= MAX_REVIEWS + MAX_WAITING:
            self._on_refused("webhook-busy")
            raise HttpError(429, f"{self._in_flight} reviews are being answered or wait; ask again later")
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
            self._on_refused("too-large")
            raise HttpError(413, str(error)) from None
        except TimeoutError:
            self._on_refused("webhook-slow")
            raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None


def _review(body: bytes, decide: Review) -> Response:
    try:
        review = msgspec.json.decode(body, type=_Review)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HttpError(400, str(error)) from None
    told = {"uid": review.request.uid, **decide(review.request)}
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": told}
    return Response(msgspec.json.encode(answer))


async def keep_ca_injected(client: Client, name: str, authority: Callable[[], str]) -> None:
    """Have the configurations of this name know our authority, until cancelled."""
    while True:
        try:
            await inject_ca(client, name, authority())
        except ApiError as error:
            log.warning("the webhooks could not be told our authority, trying again", error=str(error))
        await asyncio.sleep(CHECK_INTERVAL_SECONDS)


async def inject_ca(client: Client, name: str, authority: str) -> None:
    bundle = _text(authority.encode())
    await _patch_ca_bundle(client, MutatingWebhookConfiguration, name, bundle)
    await _patch_ca_bundle(client, ValidatingWebhookConfiguration, name, bundle)


async def _patch_ca_bundle(client: Client, kind: type[Configuration], name: str, bundle: str) -> None:
    found = await client.get(kind, name)
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, one in enumerate(found.webhooks)
        if one.client_config.ca_bundle != bundle
    ]
    if operations:
        await client.patch(kind, name, operations, type=PatchType.JSON)
        log.info("the webhooks know our authority", kind=kind.resource.kind, name=name)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
