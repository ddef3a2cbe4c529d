"""Handles get and list.

All pages of a list show the version of the first page, which is restored from the history; 410 if it is no
longer there. Items are sent as the stored bytes, in chunks, so that a long list neither blocks the event loop
nor needs twice the memory.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from argosy.local.apiserver import representations
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.continue_token import NOW, read_token, write_token
from argosy.local.apiserver.http import Request, Response, reply
from argosy.local.apiserver.negotiation import wanted_form
from argosy.local.apiserver.options import invalid_error
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.selection import read_selection, read_selectors
from argosy.local.apiserver.status import StatusError, bad_request, expired, not_found
from argosy.local.apiserver.store import Store, Stored, TooOldError
from argosy.local.schema.errors import FieldError, forbidden, not_supported
from argosy.local.schema.model import Json

_CHUNK_BYTES = 256 * 1024
_VERSION_WAIT_SECONDS = 3.0
"""How long a read waits for a version that does not exist yet."""


async def get_object(call: Call) -> Response:
    form = wanted_form(call.request)
    rv = parse_version(call.request.parameter("resourceVersion"), alone=True)
    await wait_for_version(call.api.store, rv)
    stored = find(call)
    return Response(
        representations.render(
            stored, call.served, form, call.request.parameter("includeObject") or "Metadata"
        )
        + b"\n"
    )


def find(call: Call) -> Stored:
    """Return the newest durable version of the object of the request; 404 if there is none."""
    served, name = call.served, call.target.name
    stored = call.api.store.collection(served.storage).get(call.namespace, name)
    if stored is None:
        raise not_found(served.group, served.plural, name)
    return stored


async def list_objects(call: Call) -> Response:
    request, served, store = call.request, call.served, call.api.store
    form = wanted_form(request)
    limit, token = check_list(request), request.parameter("continue")
    selection = read_selection(request, served, call.namespace)
    rv = parse_version(request.parameter("resourceVersion"))
    after = ""
    if token:
        rv, after = read_token(token)
        if request.parameter("resourceVersion") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
    elif request.parameter("resourceVersion") == "0":
        limit = 0  # any version; as in Kubernetes, without paging
    await wait_for_version(store, rv)
    match = request.parameter("resourceVersionMatch")
    # As in Kubernetes, a page with a version and without resourceVersionMatch has exactly that version.
    exact = match == "Exact" or (rv > 0 and (bool(token) or (limit > 0 and not match)))
    shown = rv if exact else store.revision
    try:
        objects = store.at(served.storage, selection.namespace, shown)
    except TooOldError:
        raise _too_old(token, after) from None
    if after:
        objects = [stored for stored in objects if _key(stored) > after]
    if selection.indexed and not token:
        objects = [stored for stored in objects if selection.is_in_index(stored)]
    # As in Kubernetes, a list of a single name has no further pages.
    single = selection.name is not None and selection.namespace is not None and not token
    last = _key(objects[-1]) if objects and not single else ""
    if not selection.everything:
        objects = [stored for stored in objects if selection.matches(stored)]
    metadata: Json = {"resourceVersion": str(shown)}
    if served.custom is not None and form == "object":
        metadata = {"continue": "", **metadata}
    if 0 < limit <= len(objects) and _key(objects[limit - 1]) < last:
        # As in Kubernetes, with a selector the next page may be empty.
        metadata["continue"] = write_token(shown, _key(objects[limit - 1]))
        if selection.everything:
            metadata["remainingItemCount"] = len(objects) - limit
        objects = objects[:limit]
    if form == "table":
        include = request.parameter("includeObject") or "Metadata"
        return reply(representations.table(objects, served, metadata, include))
    if form == "metadata":
        return reply(representations.metadata_list(objects, metadata))
    return _list_response(objects, served, metadata)


def check_list(request: Request) -> int:
    """Check the options of a list; return its limit."""
    request.integer("timeoutSeconds")  # must be a number, although lists ignore it
    limit = request.integer("limit") or 0
    read_selectors(request)
    check_list_options(request)
    return max(limit, 0)


def _list_response(objects: Sequence[Stored], served: Served, metadata: Json) -> Response:
    start = representations.list_start(served, metadata)
    if sum(len(stored.data) for stored in objects) < 2 * _CHUNK_BYTES:
        return Response(
            start + b",".join([representations.item(stored, served) for stored in objects]) + b"]}\n"
        )
    return Response(_chunks(start, objects, served))


async def _chunks(start: bytes, objects: Sequence[Stored], served: Served) -> AsyncIterator[bytes]:
    chunk, size = [start], len(start)
    last = len(objects) - 1
    for index, stored in enumerate(objects):
        data = representations.item(stored, served)
        chunk.append(data)
        if index < last:
            chunk.append(b",")
        size += len(data)
        if size >= _CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    yield b"".join([*chunk, b"]}\n"])


def parse_version(text: str, *, alone: bool = False) -> int:
    """Return a resourceVersion as a number; 0 if it is empty.

    `alone` for a watch or a get, for which Kubernetes responds to an invalid one with an internal error.
    """
    if not text:
        return 0
    if text.isascii() and text.isdigit() and int(text) < 2**64:
        return int(text)
    why = f'resourceVersion: Invalid value: "{text}": must be a number'
    raise StatusError(500, "", why) if alone else bad_request(f"invalid resource version: {why}")


async def wait_for_version(store: Store, rv: int) -> None:
    """Wait for a version that does not exist yet; 504 if it takes too long."""
    deadline = asyncio.get_running_loop().time() + _VERSION_WAIT_SECONDS
    while store.revision < rv:
        if asyncio.get_running_loop().time() >= deadline:
            raise _too_new(rv, store.revision)
        await asyncio.sleep(0.05)


def check_list_options(request: Request) -> None:
    """Raise 422 if options of a list or watch cannot be combined."""
    match, field = request.parameter("resourceVersionMatch"), "resourceVersionMatch"
    initial = "sendInitialEvents" in request.query
    errors = _watch_errors(match, initial) if request.flag("watch") else _list_errors(match, request)
    if match and request.parameter("continue"):
        errors.append(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    if initial and not request.flag("watch"):
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise invalid_error("meta.k8s.io", "ListOptions", "", errors)


def _watch_errors(match: str, initial: bool) -> list[FieldError]:
    field, errors = "resourceVersionMatch", list[FieldError]()
    if initial and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(forbidden(field, why))
    if match and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden(field, why))
    if match and match != "NotOlderThan":
        errors.append(not_supported(field, match, ["NotOlderThan"]))
    return errors


def _list_errors(match: str, request: Request) -> list[FieldError]:
    field, errors = "resourceVersionMatch", list[FieldError]()
    if not match:
        return errors
    rv = request.parameter("resourceVersion")
    if not rv:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(forbidden(field, why))
    if match not in ("Exact", "NotOlderThan"):
        errors.append(not_supported(field, match, ["Exact", "NotOlderThan", ""]))
    if match == "Exact" and rv == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(forbidden(field, why))
    return errors


def _key(stored: Stored) -> str:
    return f"{stored.namespace}/{stored.name}"


def _too_old(token: str, after: str) -> StatusError:
    if not token:
        return expired("The resourceVersion for the provided list is too old.")
    error = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a "
        "new list without the continue parameter, or use the continue token in this response to retrieve the "
        "remainder of the results. Continuing with the provided token results in an inconsistent list - "
        "objects that were created, modified, or deleted between the time the first chunk was returned and "
        "now may show up in the list."
    )
    error.list_metadata = {"continue": write_token(NOW, after)}
    return error


def _too_new(rv: int, current: int) -> StatusError:
    details: Json = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(
        504, "Timeout", f"Timeout: Too large resource version: {rv}, current: {current}", details
    )
