"""A proxy for tests of clients: `python proxy.py --scheme http|https|socks5`.

It writes a line per event to standard output: `listening PORT` first, then `tunnel HOST:PORT` and
`refused REASON`. It resolves names that end in `.invalid`, which no resolver knows, to this machine: a client
that reaches such a name used the proxy and did not resolve the name itself.
"""

import argparse
import asyncio
import base64
import ipaddress
import ssl
from typing import NamedTuple, TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class Refusal(Exception):  # noqa: N818
    """The reason for refusing a tunnel."""


class Proxy(NamedTuple):
    scheme: str
    login: str
    """`name:password`, or empty if no login is required."""

    async def accept(self, reader: Reader, writer: Writer) -> None:
        try:
            is_socks = self.scheme == "socks5"
            host, port = await (self._socks(reader, writer) if is_socks else self._http(reader))
            say(f"tunnel {host}:{port}")
            address = "127.0.0.1" if host.endswith(".invalid") else host
            answers, upstream = await asyncio.open_connection(address, port)
            writer.write(SOCKS_GRANTED if is_socks else HTTP_GRANTED)
            await asyncio.gather(pass_on(reader, upstream), pass_on(answers, writer))
        except Refusal as refusal:
            say(f"refused {refusal}")
            if self.scheme != "socks5":
                writer.write(HTTP_REFUSED)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _http(self, reader: Reader) -> tuple[str, int]:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = request.split()
        if method != "CONNECT":
            raise Refusal(method)
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and f"Proxy-Authorization: {wanted}" not in lines:
            raise Refusal("login")
        host, _, port = target.rpartition(":")
        return host.strip("[]"), int(port)

    async def _socks(self, reader: Reader, writer: Writer) -> tuple[str, int]:
        _, count = await reader.readexactly(2)
        method = 2 if self.login else 0
        if method not in await reader.readexactly(count):
            writer.write(b"\x05\xff")
            raise Refusal("login")
        writer.write(bytes([5, method]))
        if method:
            await reader.readexactly(1)
            name, password = await counted(reader), await counted(reader)
            right = f"{name}:{password}" == self.login
            writer.write(b"\x01\x00" if right else b"\x01\x01")
            if not right:
                raise Refusal("login")
        *_, kind = await reader.readexactly(4)
        if kind == 3:
            host = await counted(reader)
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        return host, int.from_bytes(await reader.readexactly(2), "big")


SOCKS_GRANTED = b"\x05\x00\x00\x01" + bytes(6)
HTTP_GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
HTTP_REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


async def counted(reader: Reader) -> str:
    (length,) = await reader.readexactly(1)
    return (await reader.readexactly(length)).decode()


async def pass_on(reader: Reader, writer: Writer) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


async def serve(proxy: Proxy, certificate: str) -> None:
    context = None
    if proxy.scheme == "https":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0, ssl=context)
    say(f"listening {server.sockets[0].getsockname()[1]}")
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--scheme", choices=("http", "https", "socks5"), required=True)
    parser.add_argument("--login", default="")
    parser.add_argument("--certificate", default="")
    chosen = parser.parse_args()
    asyncio.run(serve(Proxy(chosen.scheme, chosen.login), chosen.certificate))
