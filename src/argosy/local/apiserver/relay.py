"""Logs, exec and attach: relayed to the node agent over its Unix socket, byte for byte.

A WebSocket to the agent is opened first, with the subprotocols that the client offers, so that client and
agent agree with each other and the server only carries messages.

Beside what Kubernetes has, `…/pods/NAME/log/UID` is the log of that very pod and of no other that has its
name by now: the agent keeps the log of a deleted pod for a while, so that who followed it still gets its last
lines. There `run=N` asks for the N-th run of a container, from 0, and 410 says that there is none any more.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.http import Receive, Request, Response, Scope, Send, reply_error
from argosy.local.apiserver.read import find
from argosy.local.apiserver.status import StatusError, bad_request, expired, internal
from argosy.local.schema.model import Json
from argosy.local.schema.reading import parts, text

if TYPE_CHECKING:
    import aiohttp

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
_REASONS = {400: "BadRequest", 404: "NotFound", 403: "Forbidden", 409: "Conflict", 500: "InternalError"}
_LARGEST_MESSAGE = 64 << 20


async def pod_log(call: Call) -> Response:
    """The log of a container, as a stream."""
    asked, name = call.target.rest, call.target.name
    pod = _found(call) if asked else find(call).decoded()
    uid = text(pod, "metadata", "uid")
    if asked and asked != uid:  # it is gone, and another may have its name
        pod, uid, container = {}, asked, call.request.parameter("container")
    else:
        container = choose_container(call.request, pod)
        if not text(pod, "spec", "nodeName"):
            return Response(b"", 204)
    query = {key: call.request.parameter(key) for key in _LOG_PARAMETERS if key in call.request.query}
    query["uid"] = uid
    path = f"/containerLogs/{call.namespace}/{name}/{container}?{urlencode(query)}"
    import aiohttp

    session = _session(call)
    try:
        answer = await session.get(f"http://agent{path}")
        if answer.status != 200:
            message = (await answer.text()).strip()
            if asked and answer.status == 404:  # not 404: that is a server that knows no logs by uid
                raise expired(message)
            raise StatusError(answer.status, _REASONS.get(answer.status, "Unknown"), message)
    except aiohttp.ClientError as error:
        await session.close()
        raise unreachable(pod, error) from error
    except BaseException:
        await session.close()
        raise
    return Response(_chunks(session, answer), content_type=_PLAIN)


def _found(call: Call) -> Json:
    stored = call.api.store.collection(call.served.storage).get(call.namespace, call.target.name)
    return stored.decoded() if stored is not None else {}


async def _chunks(session: "aiohttp.ClientSession", answer: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    try:
        yield b""
        async for chunk in answer.content.iter_any():
            yield chunk
    finally:
        await session.close()


def choose_container(request: Request, pod: Json) -> str:
    """The container that is asked for, or the only one."""
    name = request.parameter("container")
    pod_name, spec = text(pod, "metadata", "name"), pod.get("spec")
    assert isinstance(spec, dict)
    regular = [text(c, "name") for c in parts(spec, "containers")]
    initial = [text(c, "name") for c in parts(spec, "initContainers")]
    ephemeral = [text(c, "name") for c in parts(spec, "ephemeralContainers")]
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


async def pod_stream(call: Call, scope: Scope, receive: Receive, send: Send) -> None:
    """Exec or attach over a WebSocket."""
    import aiohttp

    pod = find(call).decoded()
    container = choose_container(call.request, pod)
    if text(pod, "status", "phase") in ("Succeeded", "Failed"):
        phase = text(pod, "status", "phase")
        raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    if not text(pod, "spec", "nodeName"):
        raise bad_request(f"pod {call.target.name} does not have a host assigned")
    query = [
        (key, value)
        for key, values in call.request.query.items()
        for value in values
        if key not in ("container", "uid")
    ]
    query.append(("uid", text(pod, "metadata", "uid")))
    path = f"/{call.target.subresource}/{call.namespace}/{call.target.name}/{container}?{urlencode(query)}"
    offered = scope.get("subprotocols")
    protocols = [str(name) for name in offered] if isinstance(offered, list) else []
    async with _session(call) as session:
        try:
            agent = await session.ws_connect(
                f"http://agent{path}", protocols=protocols, max_msg_size=_LARGEST_MESSAGE, autoping=True
            )
        except aiohttp.WSServerHandshakeError as error:
            raise StatusError(error.status, _REASONS.get(error.status, "Unknown"), error.message) from error
        except aiohttp.ClientError as error:
            raise unreachable(pod, error) from error
        await receive()
        await send({"type": "websocket.accept", "subprotocol": agent.protocol})
        await _carry(agent, receive, send)


async def _carry(agent: "aiohttp.ClientWebSocketResponse", receive: Receive, send: Send) -> None:
    """Messages both ways until either side closes."""
    outward = asyncio.ensure_future(_outward(agent, send))
    inward = asyncio.ensure_future(_inward(agent, receive))
    try:
        await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (outward, inward):
            task.cancel()
        await asyncio.gather(outward, inward, return_exceptions=True)
        await agent.close()


async def _outward(agent: "aiohttp.ClientWebSocketResponse", send: Send) -> None:
    import aiohttp

    async for message in agent:
        if message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
    await send({"type": "websocket.close", "code": agent.close_code or 1000})


async def _inward(agent: "aiohttp.ClientWebSocketResponse", receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        content = message.get("bytes")
        if isinstance(content, bytes):
            await agent.send_bytes(content)
        else:
            await agent.send_str(str(message.get("text", "")))


async def refuse(error: StatusError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a WebSocket handshake with a Status."""
    await receive()
    extensions = scope.get("extensions")
    if not isinstance(extensions, Mapping) or "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    response = reply_error(error)
    headers = [(b"content-type", response.content_type)]
    await send({"type": "websocket.http.response.start", "status": error.code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})


def unreachable(pod: Json, error: Exception) -> StatusError:
    node = text(pod, "spec", "nodeName")
    return internal(f"error dialing backend of node {node}: {error}")


def _session(call: Call) -> "aiohttp.ClientSession":
    import aiohttp

    connector = aiohttp.UnixConnector(path=str(call.api.state / "agent.sock"))
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, read_bufsize=1 << 20
    )
