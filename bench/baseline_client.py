"""The baseline client: creates given pods, 64 requests in flight, and does nothing else.

`python -m bench.baseline_client SERVER PODS` reads the description of a server and a list of pods from files,
prints `ready`, waits for a line, creates the pods, prints `done`, and waits until its input ends, so that its
CPU time and memory can be read. With `--repair` it creates each pod as soon as the pod of that name is
deleted. With `--list` it reads the given paths instead.
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


class BaselinePod(Struct):
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
    server = msgspec.json.decode(options.server.read_bytes(), type=Server, dec_hook=_decode_path)
    if options.list:
        run(_list(server, options.list))
    else:
        pods = msgspec.json.decode(options.pods.read_bytes(), type=list[BaselinePod])
        run(_repair(server, pods) if options.repair else _create(server, pods))
    print("done", flush=True)
    sys.stdin.read()


async def _list(server: Server, paths: Sequence[str]) -> None:
    async with plain_client(server) as client:
        await asyncio.gather(*(client.ask("GET", f"{path}?resourceVersion=0") for path in paths))


async def _create(server: Server, pods: Sequence[BaselinePod]) -> None:
    async with plain_client(server) as client:
        remaining = iter(pods)
        await _wait_for_start()

        async def worker() -> None:
            for pod in remaining:
                await _post(client, pod)

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def _repair(server: Server, pods: Sequence[BaselinePod]) -> None:
    """Create each pod again as soon as a watch reports its deletion."""
    by_name: Mapping[str, BaselinePod] = {pod.name: pod for pod in pods}
    decode = msgspec.json.Decoder(_Event).decode
    path = f"/api/v1/namespaces/{pods[0].namespace}/pods"
    async with plain_client(server) as client, asyncio.TaskGroup() as tasks:
        version = msgspec.json.decode((await client.ask("GET", f"{path}?limit=1")).body, type=_Collection)
        query = {"watch": "true", "resourceVersion": version.metadata.resource_version}
        async with client.stream(path, query) as stream:
            await _wait_for_start()
            missing = len(pods)
            while missing:
                event = decode(await stream.line())
                if event.type == "DELETED" and event.object.metadata.name in by_name:
                    tasks.create_task(_post(client, by_name[event.object.metadata.name]))
                    missing -= 1


class _ListMeta(Struct, rename="camel"):
    resource_version: str


class _Collection(Struct):
    metadata: _ListMeta


async def _post(client: Plain, pod: BaselinePod) -> None:
    path = f"/api/v1/namespaces/{pod.namespace}/pods?fieldManager=argosy&fieldValidation=Strict"
    response = await client.ask("POST", path, bytes(pod.body))
    if response.status >= 300:
        raise RuntimeError(response.body.decode())


async def _wait_for_start() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def _decode_path(kind: type, value: object) -> object:
    return kind(value)


if __name__ == "__main__":
    main()
