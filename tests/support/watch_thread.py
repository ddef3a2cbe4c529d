"""Sees every change of a kind's objects from a thread of its own, while a test runs commands."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject
from tests.support.waiting import connections_closed

T = TypeVar("T", bound=ApiObject)
PATIENCE = 30.0


@contextmanager
def watch_in_thread(
    kubeconfig: Path,
    kind: type[T],
    changed: Callable[[Change[T]], None],
    *,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
) -> Iterator[None]:
    """Tell every change while the block runs, and everything that is there before it begins."""
    synced = threading.Event()
    stopping = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def watch() -> None:
        loops.append(asyncio.get_running_loop())
        async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
            cache = Cache(client, kind, namespace=namespace, labels=labels, fields=fields)
            cache.subscribe(changed)
            task = asyncio.create_task(cache.run())
            await cache.wait_synced()
            synced.set()
            await stopping.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await connections_closed()

    thread = threading.Thread(target=lambda: asyncio.run(watch()))
    thread.start()
    try:
        assert synced.wait(PATIENCE), f"the watch of {kind.resource.plural} did not come up"
        yield
    finally:
        for loop in loops:
            loop.call_soon_threadsafe(stopping.set)
        thread.join(PATIENCE)
