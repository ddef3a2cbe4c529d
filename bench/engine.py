"""The engine on one core: watch events per second into an indexed cache, and memory per cached pod."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator

import msgspec

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.credentials import FixedCredentials
from argosy.engine.gc_tuning import collect_and_freeze
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Pod
from argosy.kinds.labels import ROLE
from bench.figures import Figure
from bench.load import full_pod

EVENTS = 40_000
CACHED_PODS = 5_000


class _Event(msgspec.Struct):
    type: str
    object: Pod


def measure() -> Iterator[Figure]:
    yield _event_rate()
    yield _memory_per_pod()


def _event_rate() -> Figure:
    """Measure by the CPU time of this process; the server is another one."""
    with _watch_server(EVENTS) as port:
        gc.disable()
        start = time.process_time()
        asyncio.run(_fill_cache(port, EVENTS))
        cpu_seconds = time.process_time() - start
        collect_and_freeze()
        gc.enable()
    lines = [msgspec.json.encode({"type": "ADDED", "object": full_pod(number)}) for number in range(2000)]
    decode = msgspec.json.Decoder(_Event).decode
    start = time.process_time()
    decoded = [decode(line) for line in lines]
    bound = len(decoded) / (time.process_time() - start)
    return Figure(
        "engine_events_per_s", EVENTS / cpu_seconds, "1/s", bound, "decoding alone", 30_000, "higher"
    )


def _memory_per_pod() -> Figure:
    bodies = [msgspec.json.encode(full_pod(number)) for number in range(CACHED_PODS)]
    decode = msgspec.json.Decoder(Pod).decode
    with _watch_server(CACHED_PODS) as port:
        tracemalloc.start()
        before = _traced_memory()
        cache = asyncio.run(_fill_cache(port, CACHED_PODS))
        cached = (_traced_memory() - before) / len(cache)
        before = _traced_memory()
        pods = [decode(body) for body in bodies]
        decoded = (_traced_memory() - before) / len(pods)
        tracemalloc.stop()
    return Figure("cache_bytes_per_pod", cached, "B", decoded, "the decoded pod alone", 4096)


def _traced_memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def _fill_cache(port: int, count: int) -> Cache[Pod]:
    """Return a cache with the indexes of the operator's, as soon as it has this many pods."""
    connection = Connection(server=f"http://127.0.0.1:{port}", credentials=FixedCredentials())
    async with Client(connection) as client:
        cache = Cache(
            client,
            Pod,
            indexes={
                "owner": lambda pod: [owner.uid for owner in pod.metadata.owner_references],
                "role": lambda pod: [pod.metadata.labels.get(ROLE, "")],
                "node": lambda pod: [pod.spec.node_name],
            },
        )
        filled = asyncio.Event()
        cache.subscribe(lambda _: filled.set() if len(cache) >= count else None)
        running = asyncio.create_task(cache.run())
        async with asyncio.timeout(60):
            await filled.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return cache


@contextlib.contextmanager
def _watch_server(count: int) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.watch_server", str(count)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
