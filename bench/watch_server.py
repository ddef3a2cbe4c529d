"""An API server with an empty list of pods and a watch that sends a given number of events at full speed."""

import asyncio
import contextlib
import sys

import msgspec

from bench.load import full_pod

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def main() -> None:
    count = int(sys.argv[1])
    events = b"".join(_event(number) for number in range(count))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            with contextlib.suppress(asyncio.IncompleteReadError):
                await respond(await reader.readuntil(b"\r\n\r\n"), writer)
        writer.close()

    async def respond(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"sendInitialEvents" in request:
            body = b'{"kind":"Status","code":422,"reason":"Invalid","message":"not supported"}'
            head = _HEAD.replace(b"200 OK", b"422 Unprocessable Entity")
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        elif b"watch=" in request:
            writer.write(_HEAD + b"Connection: close\r\n\r\n")
            for start in range(0, len(events), 1 << 16):
                writer.write(events[start : start + (1 << 16)])
                await writer.drain()
        else:
            body = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
            writer.write(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _event(number: int) -> bytes:
    return msgspec.json.encode({"type": "ADDED", "object": full_pod(number)}) + b"\n"


if __name__ == "__main__":
    asyncio.run(main())
