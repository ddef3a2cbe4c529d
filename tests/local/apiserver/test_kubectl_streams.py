"""Logs, exec and attach are forwarded to a node agent."""

import asyncio
import http.client
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from argosy.wire import server as wire
from argosy.wire.messages import HandlerResult, HttpError, Request, Response, Upgrade
from argosy.wire.websocket import WebSocket
from tests.support.servers import Server


class Kubectl(Protocol):
    namespace: str
    server: Server

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0, seconds: float = 30) -> str: ...


async def answer(request: Request) -> HandlerResult:
    match request.path.strip("/").split("/"):
        case ["containerLogs", _, _, "silent"]:
            raise HttpError(400, 'container "silent" in pod "p" is waiting to start')
        case ["containerLogs", _, _, _]:
            return Response(lines(int(request.parameter("tailLines", "3"))), content_type=b"text/plain")
        case ["exec", _, _, _]:
            assert "v5.channel.k8s.io" in request.subprotocols
            return Upgrade("v5.channel.k8s.io", lambda socket: execute(socket, request))
    raise HttpError(404, request.path)


async def lines(count: int) -> AsyncIterator[bytes]:
    for line in range(count):
        yield f"line {line}\n".encode()


async def execute(socket: WebSocket, request: Request) -> None:
    """Echoes stdin in capitals to stdout, then ends with the exit code that the command names."""
    command = request.query["command"]
    await socket.send(b"\x01" + " ".join(command).encode() + b"\n")
    if request.parameter("stdin") in ("1", "true"):
        while isinstance(message := await socket.receive(), bytes) and message[:1] != b"\xff":
            if message[:1] == b"\x00":
                await socket.send(b"\x01" + message[1:].upper())
    code = command[-1] if command[-1].isdigit() else "0"
    status: dict[str, object] = {"status": "Success"}
    if code != "0":
        causes = [{"reason": "ExitCode", "message": code}]
        status = {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": causes},
        }
    await socket.send(b"\x03" + json.dumps(status).encode())


@asynccontextmanager
async def agent(server: Server) -> AsyncIterator[None]:
    listening = wire.Server(answer)
    await listening.listen_unix(server.folder / "agent.sock")
    try:
        yield
    finally:
        await listening.close(1)


def start_pod(kubectl: Kubectl, *containers: str) -> None:
    listed = [{"name": name, "image": "busybox"} for name in containers]
    spec = {"containers": listed, "nodeName": "here"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


async def test_logs(kubectl: Kubectl) -> None:
    start_pod(kubectl, "main", "silent")
    async with agent(kubectl.server):
        shown = await asyncio.to_thread(kubectl, "logs", "p", "-c", "main")
        assert shown == "line 0\nline 1\nline 2\n"
        assert await asyncio.to_thread(kubectl, "logs", "p", "-c", "main", "--tail=1", "-f") == "line 0\n"
        refused = await asyncio.to_thread(kubectl, "logs", "p", "-c", "silent", code=1)
        assert "waiting to start" in refused


async def test_exec_forwards_output_input_and_exit_code(kubectl: Kubectl) -> None:
    start_pod(kubectl, "main")
    async with agent(kubectl.server):
        assert await asyncio.to_thread(kubectl, "exec", "p", "--", "echo", "hi") == "echo hi\n"
        failed = await asyncio.to_thread(kubectl, "exec", "p", "--", "exit", "7", code=7)
        assert "exit code 7" in failed
        echoed = await asyncio.to_thread(kubectl, "exec", "-i", "p", "--", "cat", stdin="hello\n")
        assert echoed == "cat\nHELLO\n"


async def test_exec_with_impersonation_has_the_rights_of_that_user(kubectl: Kubectl) -> None:
    start_pod(kubectl, "main")
    kubectl("create", "role", "exec", "--verb=get,create", "--resource=pods,pods/exec")
    kubectl("create", "rolebinding", "exec", "--role=exec", "--user=guest")
    as_guest = ("exec", "p", "--as=guest", "--", "echo", "hi")
    as_stranger = ("exec", "p", "--as=stranger", "--", "echo", "hi")
    async with agent(kubectl.server):
        assert await asyncio.to_thread(kubectl, *as_guest) == "echo hi\n"
        refused = await asyncio.to_thread(kubectl, *as_stranger, code=1)
    assert 'User "stranger" cannot' in refused


IMPERSONATING = {
    "impersonation without the right to impersonate: 403": ("guest", "administrator", 403),
    "own rights: allowed": ("guest", "", 500),
    "impersonation of a user without rights: 403": ("admin", "stranger", 403),
    "impersonation of a user with rights: allowed": ("admin", "guest", 500),
}
"""User, impersonated user, and status: a request that is allowed ends with 500, as there is no agent."""


@pytest.mark.parametrize("case", IMPERSONATING.values(), ids=IMPERSONATING)
def test_streams_are_authorized_as_the_impersonated_user(
    kubectl: Kubectl, case: tuple[str, str, int]
) -> None:
    by, name, want_code = case
    start_pod(kubectl, "main")
    (kubectl.server.folder / "agent.sock").unlink(missing_ok=True)
    kubectl("create", "serviceaccount", "guest")
    kubectl("create", "role", "exec", "--verb=get,create", "--resource=pods,pods/exec,pods/attach")
    account = f"{kubectl.namespace}:guest"
    kubectl("create", "rolebinding", "exec", "--role=exec", f"--serviceaccount={account}", "--user=guest")
    token = kubectl.server.token if by == "admin" else kubectl("create", "token", "guest").strip()
    for verb in ("exec", "attach"):
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/p/{verb}?command=true&stdout=true"
        assert handshake(kubectl.server, path, token, name) == want_code


def handshake(server: Server, path: str, token: str, name: str) -> int:
    """The code with which a WebSocket is answered."""
    context = ssl.create_default_context(cafile=str(server.ca_file))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
    headers = {
        "Authorization": f"Bearer {token}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    }
    try:
        connection.request("GET", path, headers=headers | ({"Impersonate-User": name} if name else {}))
        return connection.getresponse().status
    finally:
        connection.close()


async def test_error_without_an_agent_contains_the_node(kubectl: Kubectl) -> None:
    start_pod(kubectl, "main")
    (kubectl.server.folder / "agent.sock").unlink(missing_ok=True)
    assert "error dialing backend" in await asyncio.to_thread(kubectl, "logs", "p", code=1)
