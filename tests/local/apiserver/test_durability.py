"""Acknowledged writes survive a crash of the server, and watches resume after it."""

import asyncio
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.local.apiserver.pki import ensure_pki
from argosy.local.schema.unstructured import get_maps, get_str
from tests.support.raw_client import Plain, plain_client
from tests.support.servers import Server, free_port, start_local
from tests.support.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Restartable:
    """A server that can be killed and started again on the same folder and port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.server = self.start()

    def start(self, *options: str) -> Server:
        return start_local(self.folder, self.port, self.processes, options)

    def kill(self) -> None:
        process = self.processes.pop()
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture
def restartable(short_folder: Path, request: pytest.FixtureRequest) -> Iterator[Restartable]:
    server = Restartable(short_folder / f"d{abs(hash(request.node.name)) % 10**6}")
    yield server
    for process in server.processes:
        process.kill()
        process.wait()


async def create(session: Plain, name: str) -> int:
    return (await session.ask("POST", CONFIG_MAPS, {"metadata": {"name": name}})).status


async def test_acknowledged_writes_survive_sigkill(restartable: Restartable) -> None:
    acknowledged: set[str] = set()

    async def write(session: Plain, worker: int) -> None:
        for number in range(10_000):
            name = f"w{worker}-{number}"
            if await create(session, name) == 201:
                acknowledged.add(name)

    async with plain_client(restartable.server) as session:
        writers = [asyncio.ensure_future(write(session, worker)) for worker in range(16)]
        await eventually(lambda: len(acknowledged) >= 300, seconds=30)
        restartable.kill()
        await asyncio.gather(*writers, return_exceptions=True)
    restartable.start()
    async with plain_client(restartable.server) as session:
        listed = (await session.ask("GET", CONFIG_MAPS)).json()
        stored = {get_str(item, "metadata", "name") for item in get_maps(listed, "items")}
    assert acknowledged <= stored


async def test_one_of_two_writers_of_the_same_version_succeeds(restartable: Restartable) -> None:
    async with plain_client(restartable.server) as session:
        await create(session, "a")
        for turn in range(20):
            current = (await session.ask("GET", f"{CONFIG_MAPS}/a")).json()

            async def write(value: int, current: dict[str, object] = current) -> int:
                body = {**current, "data": {"value": str(value)}}
                return (await session.ask("PUT", f"{CONFIG_MAPS}/a", body)).status

            codes = await asyncio.gather(*[write(turn * 100 + value) for value in range(8)])
            assert sorted(codes) == [200] + [409] * 7


async def test_a_watch_resumes_across_a_restart(restartable: Restartable) -> None:
    async with plain_client(restartable.server) as session:
        version = get_str((await session.ask("GET", CONFIG_MAPS)).json(), "metadata", "resourceVersion")
        await create(session, "before")
    restartable.kill()
    restartable.start()
    query = {"watch": "true", "resourceVersion": version}
    async with plain_client(restartable.server) as session:
        await create(session, "after")
        async with asyncio.timeout(60), session.stream(CONFIG_MAPS, query) as stream:
            events = [json.loads(await stream.line()) for _ in range(2)]
    assert [event["object"]["metadata"]["name"] for event in events] == ["before", "after"]


async def test_watch_from_a_compacted_version_is_expired(restartable: Restartable) -> None:
    restartable.kill()
    restartable.start("--history-count", "5")
    async with plain_client(restartable.server) as session:
        for number in range(20):
            await create(session, f"c{number}")
        query = {"watch": "true", "resourceVersion": "2"}
        async with asyncio.timeout(60), session.stream(CONFIG_MAPS, query) as stream:
            event = json.loads(await stream.line())
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_unix_socket_has_the_same_certificate(restartable: Restartable) -> None:
    server = restartable.server
    context = ssl.create_default_context(cafile=str(server.ca_file))
    path = str(restartable.folder / "apiserver.sock")
    reader, writer = await asyncio.open_unix_connection(path, ssl=context, server_hostname="localhost")
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"ok")
    writer.close()
    await writer.wait_closed()


def test_second_server_in_the_same_folder_exits_with_an_error(restartable: Restartable) -> None:
    command = [sys.executable, "-m", "argosy.local.apiserver", "--state", str(restartable.folder)]
    taken = subprocess.run(
        [*command, "--port", str(free_port())], capture_output=True, text=True, timeout=60, check=False
    )
    assert taken.returncode == 1
    assert "database is locked; is another server using it?" in taken.stderr


def test_error_of_a_port_in_use_contains_the_port(restartable: Restartable, short_folder: Path) -> None:
    folder = short_folder / "taken"
    ensure_pki(folder)
    command = [sys.executable, "-m", "argosy.local.apiserver", "--state", str(folder)]
    taken = subprocess.run(
        [*command, "--port", str(restartable.port)], capture_output=True, text=True, timeout=60, check=False
    )
    assert taken.returncode == 1
    assert f"on port {restartable.port}" in taken.stderr
