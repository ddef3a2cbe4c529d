"""Logs, exec and attach through the server to a node agent that speaks the agent's protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import WSMsgType, web

from argosy.testing.servers import Server


class Kubectl(Protocol):
    namespace: str
    server: Server

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0, seconds: float = 30) -> str: ...


async def logs(request: web.Request) -> web.StreamResponse:
    if request.match_info["container"] == "silent":
        return web.Response(status=400, text='container "silent" in pod "p" is waiting to start')
    stream = web.StreamResponse()
    await stream.prepare(request)
    for line in range(int(request.query.get("tailLines", "3"))):
        await stream.write(f"line {line}\n".encode())
    await stream.write_eof()
    return stream


async def execute(request: web.Request) -> web.WebSocketResponse:
    """Echoes stdin in capitals to stdout, then ends with the exit code that the command names."""
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
    await socket.prepare(request)
    assert socket.ws_protocol == "v5.channel.k8s.io"
    command = request.query.getall("command")
    await socket.send_bytes(b"\x01" + " ".join(command).encode() + b"\n")
    if request.query.get("stdin") in ("1", "true"):
        async for message in socket:
            if message.type is not WSMsgType.BINARY or message.data[:1] == b"\xff":
                break
            if message.data[:1] == b"\x00":
                await socket.send_bytes(b"\x01" + message.data[1:].upper())
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
    await socket.send_bytes(b"\x03" + json.dumps(status).encode())
    await socket.close()
    return socket


@asynccontextmanager
async def agent(server: Server) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    app.router.add_get("/exec/{namespace}/{pod}/{container}", execute)
    runner = web.AppRunner(app)
    await runner.setup()
    path = server.folder / "agent.sock"
    path.unlink(missing_ok=True)
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


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


async def test_exec_brings_output_input_and_exit_code(kubectl: Kubectl) -> None:
    start_pod(kubectl, "main")
    async with agent(kubectl.server):
        assert await asyncio.to_thread(kubectl, "exec", "p", "--", "echo", "hi") == "echo hi\n"
        failed = await asyncio.to_thread(kubectl, "exec", "p", "--", "exit", "7", code=7)
        assert "exit code 7" in failed
        echoed = await asyncio.to_thread(kubectl, "exec", "-i", "p", "--", "cat", stdin="hello\n")
        assert echoed == "cat\nHELLO\n"


async def test_without_an_agent_the_answer_says_so(kubectl: Kubectl) -> None:
    start_pod(kubectl, "main")
    (kubectl.server.folder / "agent.sock").unlink(missing_ok=True)
    assert "error dialing backend" in await asyncio.to_thread(kubectl, "logs", "p", code=1)
