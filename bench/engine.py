"""The engine on one core: watch events decoded and indexed, and what a cached pod weighs."""

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
WEIGHED = 5_000


class _Event(msgspec.Struct):
    type: str
    object: Pod


def measure() -> Iterator[Figure]:
    yield _rate()
    yield _weight()


def _rate() -> Figure:
    """By the CPU time of this process, which does nothing else: the server is another one."""
    with _streaming(EVENTS) as port:
        gc.disable()
        began = time.process_time()
        asyncio.run(_filled(port, EVENTS))
        used = time.process_time() - began
        collect_and_freeze()
        gc.enable()
    lines = [msgspec.json.encode({"type": "ADDED", "object": full_pod(number)}) for number in range(2000)]
    decode = msgspec.json.Decoder(_Event).decode
    began = time.process_time()
    kept = [decode(line) for line in lines]
    bound = len(kept) / (time.process_time() - began)
    return Figure("engine_events_per_s", EVENTS / used, "1/s", bound, "decoding alone", 30_000, "higher")


def _weight() -> Figure:
    bodies = [msgspec.json.encode(full_pod(number)) for number in range(WEIGHED)]
    decode = msgspec.json.Decoder(Pod).decode
    with _streaming(WEIGHED) as port:
        tracemalloc.start()
        before = _held()
        cache = asyncio.run(_filled(port, WEIGHED))
        cached = (_held() - before) / len(cache)
        before = _held()
        pods = [decode(body) for body in bodies]
        bare = (_held() - before) / len(pods)
        tracemalloc.stop()
    return Figure("cache_bytes_per_pod", cached, "B", bare, "the decoded pod alone", 4096)


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def _filled(port: int, count: int) -> Cache[Pod]:
    """A cache indexed as the operator's is, once it holds so many pods."""
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
        full = asyncio.Event()
        cache.subscribe(lambda _: full.set() if len(cache) >= count else None)
        running = asyncio.create_task(cache.run())
        async with asyncio.timeout(60):
            await full.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return cache


@contextlib.contextmanager
def _streaming(count: int) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-m", "bench.stream", str(count)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
