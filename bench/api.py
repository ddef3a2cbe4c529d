"""The local API server: durable creates, long lists, many watchers, and memory with 20,000 pods."""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from argosy.engine.loop import run
from bench.figures import Figure
from bench.load import baseline_server, encoded_pod, per_second, pod
from tests.support.raw_client import Plain, plain_client
from tests.support.servers import Server, local_apiserver

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WATCHERS, WRITES_PER_SECOND, WATCH_SECONDS = 200, 100, 5.0
STORED = 20_000
ROUNDS, WARM, CREATES = 5, 300, 1500


def measure() -> Iterator[Figure]:
    """Yield all figures, measured on one server that is filled meanwhile."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, local_apiserver(Path(folder)) as server:
        _create_default_account(server)
        yield run(_creates(server, Path(folder)))
        yield run(_watchers(server))
        run(_fill(server))
        yield run(_list(server, Path(folder)))
        yield _memory(server)


def _create_default_account(server: Server) -> None:
    """Create the ServiceAccount that pods need; no controller runs here."""

    async def create() -> None:
        async with plain_client(server) as client:
            body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            await client.ask("POST", "/api/v1/namespaces/default/serviceaccounts", body)

    run(create())


async def _creates(server: Server, folder: Path) -> Figure:
    """Measure alternating rounds of server and bound; the best count, because other load only slows both."""
    response = folder / "response.json"
    response.write_text(json.dumps(pod("baseline")))
    rates, bounds = [], []
    with baseline_server(server, response) as baseline:
        async with plain_client(server) as measured, plain_client(baseline) as bound:
            for client in (measured, bound):
                await _created_per_second(client, "warm", WARM)
            for number in range(ROUNDS):
                rates.append(await _created_per_second(measured, f"create-{number}", CREATES))
                bounds.append(await _created_per_second(bound, f"create-{number}", CREATES))
    bound_is = f"the HTTP stack alone, same bodies; best of {ROUNDS} alternating rounds"
    return Figure("api_creates_per_s", max(rates), "1/s", max(bounds), bound_is, 1500, "higher")


async def _created_per_second(client: Plain, prefix: str, count: int) -> float:
    bodies = [encoded_pod(f"{prefix}-{number}") for number in range(count)]
    return await per_second(count, lambda number: _post(client, PODS, bodies[number]))


async def _list(server: Server, folder: Path) -> Figure:
    async with plain_client(server) as client:
        seconds, size = await _get(client, f"{PODS}?limit=10000")
    response = folder / "list.json"
    response.write_bytes(b" " * size)
    with baseline_server(server, response) as baseline:
        async with plain_client(baseline) as client:
            await _get(client, PODS)
            bound, _ = await _get(client, PODS)
    return Figure("api_list_10k_s", seconds, "s", bound, f"the HTTP stack alone, {size / 1e6:.0f} MB", 0.5)


async def _watchers(server: Server) -> Figure:
    """Measure the delay of each write at each watcher; a write carries the time at which it was sent."""
    async with plain_client(server) as client:
        delays: list[float] = []
        opened = [asyncio.Event() for _ in range(WATCHERS)]
        tasks = [asyncio.create_task(_watch(client, event, delays)) for event in opened]
        await asyncio.gather(*(event.wait() for event in opened))
        start = time.perf_counter()
        number = 0
        while (elapsed := time.perf_counter() - start) < WATCH_SECONDS:
            if number <= elapsed * WRITES_PER_SECOND:
                metadata = {"name": f"watched-{number}", "annotations": {"sent": str(time.perf_counter())}}
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                await _post(client, CONFIG_MAPS, json.dumps(body).encode())
                number += 1
            else:
                await asyncio.sleep(0.001)
        await _wait_until(lambda: len(delays) >= number * WATCHERS, 10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if len(delays) < number * WATCHERS:
        raise RuntimeError(f"only {len(delays)} of {number * WATCHERS} events arrived")
    return Figure("watch_p99_ms", _p99(delays) * 1000, "ms", await _socket_delivery(), "bare sockets", 250)


async def _watch(client: Plain, opened: asyncio.Event, delays: list[float]) -> None:
    async with client.stream(CONFIG_MAPS, {"watch": "true", "resourceVersion": "0"}) as stream:
        opened.set()
        rest = b""
        while chunk := await stream.chunk():
            now = time.perf_counter()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _, separator, sent = line.partition(b'"sent":"')
                if separator:
                    delays.append(now - float(sent[: sent.index(b'"')]))


async def _socket_delivery() -> float:
    """Return the bound: the delay of one loop that writes an event's bytes to as many sockets."""
    delays: list[float] = []
    message = b"x" * 700 + b"\n"
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sent = 0.0

    async def read(reader: asyncio.StreamReader) -> None:
        while await reader.readline():
            delays.append(time.perf_counter() - sent)

    ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(WATCHERS)]
    tasks = [asyncio.create_task(read(reader)) for reader, _ in ends]
    for _ in range(100):
        sent = time.perf_counter()
        for writer in writers:
            writer.write(message)
        await asyncio.sleep(1 / WRITES_PER_SECOND)
    for task in tasks:
        task.cancel()
    for writer in [*writers, *(writer for _, writer in ends)]:
        writer.close()
    server.close()
    return _p99(delays) * 1000


async def _fill(server: Server) -> None:
    async with plain_client(server) as client:
        metadata = (await client.ask("GET", f"{PODS}?limit=1")).json()["metadata"]
        assert isinstance(metadata, dict)
        existing = 1 + int(metadata.get("remainingItemCount", 0))
        await per_second(STORED - existing, lambda number: _post(client, PODS, encoded_pod(f"fill-{number}")))


def _memory(server: Server) -> Figure:
    status = Path(f"/proc/{server_pid(server)}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    stored = STORED * len(json.dumps(pod("bench-00000")))
    return Figure("api_rss_mb", resident / 1024, "MB", stored / 1e6, "the pods' JSON as sent", 250)


def server_pid(server: Server) -> int:
    """Return the pid of the server of a state folder, by its command line."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"argosy.local.apiserver" in words and str(server.folder).encode() in words:
                return int(process.name)
    raise LookupError(f"no server process for {server.folder}")


async def _post(client: Plain, path: str, body: bytes) -> None:
    response = await client.ask("POST", path, body)
    if response.status >= 300:
        raise RuntimeError(response.body.decode())


async def _get(client: Plain, path: str) -> tuple[float, int]:
    start = time.perf_counter()
    response = await client.ask("GET", path)
    return time.perf_counter() - start, len(response.body)


async def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Poll a condition until a deadline; the caller checks the result."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - other tasks change it
                await asyncio.sleep(0.05)


def _p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]
