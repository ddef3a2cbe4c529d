"""Watches: selectors, bookmarks, timeouts, and many watchers."""

import asyncio
import json

from argosy.local.schema.unstructured import get_str
from tests.support.raw_client import Plain, Stream, plain_client
from tests.support.servers import Server


async def fresh_namespace(session: Plain) -> str:
    created = await session.ask("POST", "/api/v1/namespaces", {"metadata": {"generateName": "w"}})
    return f"/api/v1/namespaces/{get_str(created.json(), 'metadata', 'name')}/secrets"


async def create(session: Plain, path: str, name: str, colour: str = "red") -> None:
    body = {"metadata": {"name": name, "labels": {"colour": colour}}}
    assert (await session.ask("POST", path, body)).status == 201


async def relabel(session: Plain, path: str, name: str, colour: str) -> None:
    patch = {"metadata": {"labels": {"colour": colour}}}
    merge = "application/merge-patch+json"
    assert (await session.ask("PATCH", f"{path}/{name}", patch, content_type=merge)).status == 200


async def read(stream: Stream, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(60):
        return [json.loads(await stream.line()) for _ in range(count)]


def shown(events: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(e["type"], e["object"]["metadata"]["labels"]["colour"]) for e in events]  # type: ignore[index]  # JSON


async def test_object_that_no_longer_matches_is_deleted_with_its_old_content(local_apiserver: Server) -> None:
    async with plain_client(local_apiserver) as session:
        path = await fresh_namespace(session)
        await create(session, path, "a")
        query = {"watch": "true", "labelSelector": "colour=red"}
        async with session.stream(path, query) as stream:
            assert shown(await read(stream, 1)) == [("ADDED", "red")]
            await relabel(session, path, "a", "blue")
            await relabel(session, path, "a", "red")
            assert shown(await read(stream, 2)) == [("DELETED", "red"), ("ADDED", "red")]


async def test_pod_is_modified_with_a_deletion_timestamp_before_it_is_deleted(
    local_apiserver: Server,
) -> None:
    async with plain_client(local_apiserver) as session:
        path = (await fresh_namespace(session)).replace("secrets", "pods")
        spec = {"containers": [{"name": "main", "image": "local"}]}
        pod = {"metadata": {"name": "a", "labels": {"colour": "red"}}, "spec": spec}
        assert (await session.ask("POST", path, pod)).status == 201
        async with session.stream(path, {"watch": "true"}) as stream:
            await read(stream, 1)
            await session.ask("DELETE", f"{path}/a")
            assert shown(await read(stream, 2)) == [("MODIFIED", "red"), ("DELETED", "red")]


async def test_initial_events_end_with_an_annotated_bookmark(local_apiserver: Server) -> None:
    async with plain_client(local_apiserver) as session:
        path = await fresh_namespace(session)
        await create(session, path, "a")
        query = {
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }
        async with session.stream(path, query) as stream:
            added, bookmark = await read(stream, 2)
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    annotations = bookmark["object"]["metadata"]["annotations"]  # type: ignore[index]  # JSON
    assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_watch_ends_after_its_timeout(local_apiserver: Server) -> None:
    async with plain_client(local_apiserver) as session:
        path = await fresh_namespace(session)
        async with (
            asyncio.timeout(60),
            session.stream(path, {"watch": "1", "timeoutSeconds": "1"}) as stream,
        ):
            assert await stream.chunk() == b""


async def test_all_watchers_get_all_events(local_apiserver: Server) -> None:
    async with plain_client(local_apiserver) as session:
        path = await fresh_namespace(session)

        async def watch() -> list[str]:
            async with session.stream(path, {"watch": "true"}) as stream:
                return [e["object"]["metadata"]["name"] for e in await read(stream, 20)]  # type: ignore[index]  # JSON

        watching = [asyncio.ensure_future(watch()) for _ in range(30)]
        for number in range(20):
            await create(session, path, f"s{number:02}")
        for names in await asyncio.gather(*watching):
            assert sorted(names) == [f"s{number:02}" for number in range(20)]
