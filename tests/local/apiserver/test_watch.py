"""Watches as clients use them: selectors, forms, bookmarks, ends."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from argosy.testing.servers import Server


@asynccontextmanager
async def client(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    headers = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(server.url, connector=connector, headers=headers) as session:
        yield session
    await asyncio.sleep(0.1)  # aiohttp lets go of TLS connections some turns after it closed them


async def fresh_namespace(session: aiohttp.ClientSession) -> str:
    async with session.post("/api/v1/namespaces", json={"metadata": {"generateName": "w"}}) as answer:
        name: str = (await answer.json())["metadata"]["name"]
        return f"/api/v1/namespaces/{name}/secrets"


async def create(session: aiohttp.ClientSession, path: str, name: str, colour: str = "red") -> None:
    body = {"metadata": {"name": name, "labels": {"colour": colour}}}
    async with session.post(path, json=body) as answer:
        assert answer.status == 201


async def relabel(session: aiohttp.ClientSession, path: str, name: str, colour: str) -> None:
    patch = json.dumps({"metadata": {"labels": {"colour": colour}}})
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(f"{path}/{name}", data=patch, headers=headers) as answer:
        assert answer.status == 200


async def read(stream: aiohttp.ClientResponse, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(10):
        return [json.loads(await stream.content.readline()) for _ in range(count)]


def shown(events: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(e["type"], e["object"]["metadata"]["labels"]["colour"]) for e in events]  # type: ignore[index]  # JSON


async def test_leaving_a_selection_is_a_deletion_of_what_was(local_apiserver: Server) -> None:
    async with client(local_apiserver) as session:
        path = await fresh_namespace(session)
        await create(session, path, "a")
        query = {"watch": "true", "labelSelector": "colour=red"}
        async with session.get(path, params=query) as stream:
            assert shown(await read(stream, 1)) == [("ADDED", "red")]
            await relabel(session, path, "a", "blue")
            await relabel(session, path, "a", "red")
            assert shown(await read(stream, 2)) == [("DELETED", "red"), ("ADDED", "red")]


async def test_a_pod_is_seen_marked_before_it_goes(local_apiserver: Server) -> None:
    async with client(local_apiserver) as session:
        path = (await fresh_namespace(session)).replace("secrets", "pods")
        spec = {"containers": [{"name": "main", "image": "local"}]}
        await session.post(path, json={"metadata": {"name": "a", "labels": {"colour": "red"}}, "spec": spec})
        async with session.get(path, params={"watch": "true"}) as stream:
            await read(stream, 1)
            await session.delete(f"{path}/a")
            assert shown(await read(stream, 2)) == [("MODIFIED", "red"), ("DELETED", "red")]


async def test_initial_events_end_with_a_marked_bookmark(local_apiserver: Server) -> None:
    async with client(local_apiserver) as session:
        path = await fresh_namespace(session)
        await create(session, path, "a")
        query = {
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }
        async with session.get(path, params=query) as stream:
            added, bookmark = await read(stream, 2)
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    annotations = bookmark["object"]["metadata"]["annotations"]  # type: ignore[index]  # JSON
    assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_ends_when_it_was_told_to(local_apiserver: Server) -> None:
    async with client(local_apiserver) as session:
        path = await fresh_namespace(session)
        async with (
            asyncio.timeout(10),
            session.get(path, params={"watch": "1", "timeoutSeconds": "1"}) as stream,
        ):
            assert await stream.content.read() == b""


async def test_many_watchers_all_hear_of_everything(local_apiserver: Server) -> None:
    async with client(local_apiserver) as session:
        path = await fresh_namespace(session)

        async def watch() -> list[str]:
            async with session.get(path, params={"watch": "true"}) as stream:
                return [e["object"]["metadata"]["name"] for e in await read(stream, 20)]  # type: ignore[index]  # JSON

        watching = [asyncio.ensure_future(watch()) for _ in range(30)]
        for number in range(20):
            await create(session, path, f"s{number:02}")
        for names in await asyncio.gather(*watching):
            assert sorted(names) == [f"s{number:02}" for number in range(20)]
