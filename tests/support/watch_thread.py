"""Watches the objects of a kind in a thread, while a test runs blocking commands."""

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
TIMEOUT_SECONDS = 30.0


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
    """Call `changed` for every existing object before the block starts, and for every change during it."""
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
        assert synced.wait(TIMEOUT_SECONDS), f"the watch of {kind.resource.plural} was not synced in time"
        yield
    finally:
        for loop in loops:
            loop.call_soon_threadsafe(stopping.set)
        thread.join(TIMEOUT_SECONDS)
