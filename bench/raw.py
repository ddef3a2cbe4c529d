"""The raw limit: a bare client that makes pods whose bodies are given, 64 at a time, and knows nothing else.

`python -m bench.raw SERVER PODS` reads a server's description and a list of pods from files, says `ready`,
waits for a line, makes them, says `done`, and stays until its input ends, so that it can be looked at. With
`--repair` it makes no pod before the one of that name is gone; with `--list` it reads all of the paths named.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from argosy.engine.loop import run
from tests.support.raw_client import Plain, plain_client
from tests.support.servers import Server

IN_FLIGHT = 64


class RawPod(Struct):
    name: str
    namespace: str
    body: msgspec.Raw


class _Meta(Struct):
    name: str


class _Object(Struct):
    metadata: _Meta


class _Event(Struct):
    type: str
    object: _Object


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=Path)
    parser.add_argument("pods", type=Path, nargs="?")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--list", nargs="+", default=[])
    options = parser.parse_args()
    server = msgspec.json.decode(options.server.read_bytes(), type=Server, dec_hook=_path)
    if options.list:
        run(_list(server, options.list))
    else:
        pods = msgspec.json.decode(options.pods.read_bytes(), type=list[RawPod])
        run(_repair(server, pods) if options.repair else _make(server, pods))
    _say("done")
    sys.stdin.read()


async def _list(server: Server, paths: Sequence[str]) -> None:
    async with plain_client(server) as client:
        await asyncio.gather(*(client.ask("GET", f"{path}?resourceVersion=0") for path in paths))


async def _make(server: Server, pods: Sequence[RawPod]) -> None:
    async with plain_client(server) as client:
        left = iter(pods)
        await _told()

        async def worker() -> None:
            for pod in left:
                await _post(client, pod)

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def _repair(server: Server, pods: Sequence[RawPod]) -> None:
    """Put each pod back as soon as a watch says that it is gone."""
    by_name: Mapping[str, RawPod] = {pod.name: pod for pod in pods}
    decode = msgspec.json.Decoder(_Event).decode
    path = f"/api/v1/namespaces/{pods[0].namespace}/pods"
    async with plain_client(server) as client, asyncio.TaskGroup() as tasks:
        version = msgspec.json.decode((await client.ask("GET", f"{path}?limit=1")).body, type=_Collection)
        query = {"watch": "true", "resourceVersion": version.metadata.resource_version}
        async with client.stream(path, query) as stream:
            await _told()
            left = len(pods)
            while left:
                event = decode(await stream.line())
                if event.type == "DELETED" and event.object.metadata.name in by_name:
                    tasks.create_task(_post(client, by_name[event.object.metadata.name]))
                    left -= 1


class _ListMeta(Struct, rename="camel"):
    resource_version: str


class _Collection(Struct):
    metadata: _ListMeta


async def _post(client: Plain, pod: RawPod) -> None:
    path = f"/api/v1/namespaces/{pod.namespace}/pods?fieldManager=argosy&fieldValidation=Strict"
    answer = await client.ask("POST", path, bytes(pod.body))
    if answer.status >= 300:
        raise RuntimeError(answer.body.decode())


async def _told() -> None:
    _say("ready")
    await asyncio.to_thread(sys.stdin.readline)


def _say(word: str) -> None:
    print(word, flush=True)


def _path(kind: type, value: object) -> object:
    return kind(value)


if __name__ == "__main__":
    main()
