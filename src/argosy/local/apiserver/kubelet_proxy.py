"""Forwards logs, exec, attach and checkpoints to the node agent over its Unix socket.

The WebSocket to the agent is opened first, with the subprotocols that the client offers, so that client and
agent negotiate with each other and the server only forwards messages.

In addition to Kubernetes, `…/pods/NAME/log/UID` is the log of the pod with that uid, even if another has its
name now: the agent keeps the log of a deleted pod for a while, so that clients get its last lines.
`run=N` selects the N-th run of a container, from 0; 410 means that the log no longer exists. Requests below
`/argosy` change the nodes of the machine; the agent answers them.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import quote, urlencode

from argosy.local.agent_token import agent_token
from argosy.local.apiserver.api import Api, Call
from argosy.local.apiserver.http import Request
from argosy.local.apiserver.read import find
from argosy.local.apiserver.status import StatusError, bad_request, expired, internal
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_maps, get_str
from argosy.wire.client import Client, StreamedResponse
from argosy.wire.errors import WebSocketHandshakeError
from argosy.wire.messages import JSON, Response, Upgrade
from argosy.wire.origin import Origin
from argosy.wire.websocket import WebSocket

_PLAIN = b"text/plain"
_LOG_PARAMETERS = (
    "follow",
    "previous",
    "tailLines",
    "timestamps",
    "sinceSeconds",
    "sinceTime",
    "limitBytes",
    "stream",
    "run",
)
_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_CONNECT_SECONDS = 10.0
_RETRY_SECONDS = 0.05
_ANSWER_SECONDS = 60.0
_CHECKPOINT_SECONDS = 3600.0
_MAX_ERROR_BYTES = 1 << 20


async def pod_log(call: Call) -> Response:
    """Return the log of a container, as a stream."""
    wanted_uid, name = call.target.rest, call.target.name
    pod = _current_pod(call) if wanted_uid else find(call).decoded()
    uid = get_str(pod, "metadata", "uid")
    if wanted_uid and wanted_uid != uid:  # it was deleted, and another pod may have its name
        pod, uid, container = {}, wanted_uid, call.request.parameter("container")
    else:
        container = choose_container(call.request, pod)
        if not get_str(pod, "spec", "nodeName"):
            return Response(b"", 204)
    query = {key: call.request.parameter(key) for key in _LOG_PARAMETERS if key in call.request.query}
    query["uid"] = uid
    path = f"/containerLogs/{call.namespace}/{name}/{container}?{urlencode(query)}"
    stack = AsyncExitStack()
    try:
        agent = await stack.enter_async_context(_agent(call.api))
        answer = await stack.enter_async_context(
            agent.stream("GET", path, _credentials(call.api), timeout=_CONNECT_SECONDS)
        )
        if answer.status != 200:
            message = (await answer.read(_MAX_ERROR_BYTES)).decode(errors="replace").strip()
            if wanted_uid and answer.status == 404:  # 404 would mean that logs by uid are not supported
                raise expired(message)
            raise _error(answer.status, message)
    except OSError as error:
        await stack.aclose()
        raise unreachable(pod, error) from error
    except BaseException:
        await stack.aclose()
        raise
    return Response(_chunks(stack, answer), content_type=_PLAIN)


async def node_request(api: Api, request: Request) -> Response:
    """Forward a request below /argosy to the agent, which may be restarting, and return its response."""
    target = request.wire.raw_path + (f"?{request.wire.raw_query}" if request.wire.raw_query else "")
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            async with _agent(api) as agent:
                answer = await agent.send(request.method, target, _credentials(api), timeout=_ANSWER_SECONDS)
                break
        except OSError as error:
            not_sent = isinstance(error, ConnectionRefusedError | FileNotFoundError)
            if not not_sent or time.monotonic() > deadline:
                raise _error(503, f"the node agent does not answer: {error}") from error
            await asyncio.sleep(_RETRY_SECONDS)
    if answer.status != 200:
        raise _error(answer.status, answer.body.decode(errors="replace").strip())
    return Response(answer.body)


async def node_checkpoint(call: Call) -> Response:
    """Forward the request for a checkpoint to the agent, and its response to the client as it is."""
    find(call)
    query = [(key, value) for key, values in call.request.query.items() for value in values if key != "node"]
    path = f"/{call.target.rest}?{urlencode([*query, ('node', call.target.name)])}"
    try:
        async with _agent(call.api) as agent:
            answer = await agent.send(
                call.request.method,
                quote(path, safe="/?=&%"),
                _credentials(call.api),
                timeout=_CHECKPOINT_SECONDS,
            )
    except OSError as error:
        raise _error(503, f"the node agent does not answer: {error}") from error
    return Response(answer.body, answer.status, _PLAIN if answer.status != 200 else JSON)


def _error(status: int, message: str) -> StatusError:
    return StatusError(status, _REASONS.get(status, "Unknown"), message)


def _current_pod(call: Call) -> Json:
    stored = call.api.store.collection(call.served.storage).get(call.namespace, call.target.name)
    return stored.decoded() if stored is not None else {}


async def _chunks(stack: AsyncExitStack, answer: StreamedResponse) -> AsyncIterator[bytes]:
    async with stack:
        yield b""
        while chunk := await answer.chunk():
            yield chunk


def choose_container(request: Request, pod: Json) -> str:
    """Return the container of the request, or the only one."""
    name = request.parameter("container")
    pod_name, spec = get_str(pod, "metadata", "name"), pod.get("spec")
    assert isinstance(spec, dict)
    regular = [get_str(c, "name") for c in get_maps(spec, "containers")]
    initial = [get_str(c, "name") for c in get_maps(spec, "initContainers")]
    ephemeral = [get_str(c, "name") for c in get_maps(spec, "ephemeralContainers")]
    if not name:
        if len(regular) == 1:
            return regular[0]
        message = (
            f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(regular)}]"
        )
        if initial:
            message += f" or one of the init containers: [{' '.join(initial)}]"
        raise bad_request(message)
    if name not in [*regular, *initial, *ephemeral]:
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    return name


async def pod_stream(call: Call) -> Upgrade:
    """Exec or attach over a WebSocket."""
    pod = find(call).decoded()
    container = choose_container(call.request, pod)
    if get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
        phase = get_str(pod, "status", "phase")
        raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    if not get_str(pod, "spec", "nodeName"):
        raise bad_request(f"pod {call.target.name} does not have a host assigned")
    query = [
        (key, value)
        for key, values in call.request.query.items()
        for value in values
        if key not in ("container", "uid")
    ]
    query.append(("uid", get_str(pod, "metadata", "uid")))
    path = f"/{call.target.subresource}/{call.namespace}/{call.target.name}/{container}?{urlencode(query)}"
    stack = AsyncExitStack()
    try:
        client = await stack.enter_async_context(_agent(call.api))
        offered = call.request.wire.subprotocols
        agent = await stack.enter_async_context(
            client.websocket(path, _credentials(call.api), offered, timeout=_CONNECT_SECONDS)
        )
    except WebSocketHandshakeError as error:
        await stack.aclose()
        message = error.body[:_MAX_ERROR_BYTES].decode(errors="replace").strip()
        raise _error(error.status, message) from error
    except OSError as error:
        await stack.aclose()
        raise unreachable(pod, error) from error
    except BaseException:
        await stack.aclose()
        raise

    async def forward(socket: WebSocket) -> None:
        async with stack:
            await _forward(agent, socket)

    return Upgrade(agent.subprotocol, forward)


async def _forward(agent: WebSocket, client: WebSocket) -> None:
    """Forward messages in both directions until one side closes; then close the client with the same code."""
    outward = asyncio.ensure_future(_copy_messages(agent, client))
    inward = asyncio.ensure_future(_copy_messages(client, agent))
    try:
        await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_COMPLETED)
        if outward.done():
            await client.close(_code(agent))
    finally:
        for task in (outward, inward):
            task.cancel()
        await asyncio.gather(outward, inward, return_exceptions=True)


async def _copy_messages(source: WebSocket, sink: WebSocket) -> None:
    with suppress(ConnectionError):
        while (message := await source.receive()) is not None:
            await sink.send(message)


def _code(ended: WebSocket) -> int:
    """Return the close code to forward; 1005 and 1006 only mean that there was none."""
    return ended.close_code if ended.close_code not in (None, 1005, 1006) else 1000


def unreachable(pod: Json, error: Exception) -> StatusError:
    node = get_str(pod, "spec", "nodeName")
    return internal(f"error dialing backend of node {node}: {error}")


def _credentials(api: Api) -> dict[str, str]:
    return {"Authorization": f"Bearer {agent_token(api.state)}"}


@asynccontextmanager
async def _agent(api: Api) -> AsyncIterator[Client]:
    client = Client(Origin.from_url("http://agent", unix_socket=str(api.state / "agent.sock")))
    try:
        yield client
    finally:
        await client.close()
