"""Deletes events an hour after their last write, as Kubernetes does."""

import asyncio
import time

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.timestamps import parse_time
from argosy.local.schema.unstructured import get_maps, get_str

TTL_SECONDS = 3600.0
_INTERVAL_SECONDS = 60.0


async def run_event_ttl(api: Api) -> None:
    """Delete expired events once per minute; never ends."""
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        await delete_old_events(api, time.time() - TTL_SECONDS)


async def delete_old_events(api: Api, before: float) -> None:
    """Delete the events whose last write was before a time."""
    served = api.registry.builtin("", "events")
    for stored in api.store.collection(served.storage).listed(None):
        event = stored.decoded()
        written = [get_str(entry, "time") for entry in get_maps(event, "metadata", "managedFields")]
        latest = max([get_str(event, "metadata", "creationTimestamp"), *written])
        if parse_time(latest).timestamp() < before:
            head = api.head(served, stored.namespace, stored.name)
            if head is not None and head.rv == stored.rv:
                await api.put(served, event, delete=True)
        await asyncio.sleep(0)
