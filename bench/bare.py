"""A server that answers anything with the same bytes: what the HTTP stack alone costs."""

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path

import uvicorn

Message = MutableMapping[str, object]


def main() -> None:
    port, pki, reply = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).read_bytes()

    async def app(
        _scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        http="httptools",
        lifespan="off",
        log_level="error",
        ssl_certfile=str(pki / "apiserver.crt"),
        ssl_keyfile=str(pki / "apiserver.key"),
    )


if __name__ == "__main__":
    main()
