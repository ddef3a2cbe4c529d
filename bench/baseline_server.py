"""A server that sends the same response to every request: the cost of the HTTP stack alone."""

import asyncio
import sys
from pathlib import Path

from argosy.engine.loop import run
from argosy.local.apiserver.server import tls_context
from argosy.wire.messages import Request, Response
from argosy.wire.server import Server


def main() -> None:
    run(_serve(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).read_bytes()))


async def _serve(port: int, state: Path, body: bytes) -> None:
    async def handle(request: Request) -> Response:
        await request.body(1 << 20)
        return Response(body)

    await Server(handle).listen_tcp("127.0.0.1", port, tls_context(state))
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
