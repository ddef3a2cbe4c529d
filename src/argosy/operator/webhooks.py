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
from argosy.engine.lines import Log
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from argosy.wire.messages import HttpError, Request, Response, TooLargeError
from argosy.workload.model import Json

log = Log(__name__)

LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a question: two versions of an object, with everything that the API server keeps beside them."""
LOOK_SECONDS: Final = 30.0
Configuration = TypeVar("Configuration", MutatingWebhookConfiguration, ValidatingWebhookConfiguration)


class Asked(Struct, frozen=True, rename="camel"):
    """What the API server asks about."""

    uid: str
    object: admission.Written
    old_object: admission.Written | None = None


class _Review(Struct, frozen=True):
    request: Asked


Answer = Callable[[Asked], Json]


def _mutate(asked: Asked) -> Json:
    patch = admission.additions(asked.object)
    if not patch:
        return {"allowed": True}
    return {"allowed": True, "patchType": "JSONPatch", "patch": _text(msgspec.json.encode(patch))}


def _validate(asked: Asked) -> Json:
    found = admission.problems(asked.object, asked.old_object)
    if found is None:
        return {"allowed": True}
    return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": str(found)}}


ARES: Final[Mapping[str, Answer]] = {
    "/mutate-ares-io-v1-aresjob": _mutate,
    "/validate-ares-io-v1-aresjob": _validate,
}


async def answer(request: Request, decide: Answer) -> Response:
    try:
        review = msgspec.json.decode(await request.body(LARGEST), type=_Review)
    except (msgspec.MsgspecError, RecursionError, TooLargeError) as error:
        raise HttpError(400, str(error)) from None
    told = {"uid": review.request.uid, **decide(review.request)}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": told}
    return Response(msgspec.json.encode(body))


async def keep_announced(client: Client, name: str, authority: Callable[[], str]) -> None:
    """Have the configurations of this name know our authority, until cancelled."""
    while True:
        try:
            await announce(client, name, authority())
        except ApiError as error:
            log.warning("the webhooks could not be told our authority, trying again", error=str(error))
        await asyncio.sleep(LOOK_SECONDS)


async def announce(client: Client, name: str, authority: str) -> None:
    bundle = _text(authority.encode())
    await _tell(client, MutatingWebhookConfiguration, name, bundle)
    await _tell(client, ValidatingWebhookConfiguration, name, bundle)


async def _tell(client: Client, kind: type[Configuration], name: str, bundle: str) -> None:
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
