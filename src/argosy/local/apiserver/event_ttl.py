"""Events are forgotten an hour after they were last written, as in Kubernetes."""

import asyncio
import time

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.timestamps import parse_time
from argosy.local.schema.unstructured import parts, text

KEPT_SECONDS = 3600.0
_EVERY_SECONDS = 60.0


async def forget_events(api: Api) -> None:
    """Delete events that are too old, once a minute; never ends."""
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        await delete_old_events(api, time.time() - KEPT_SECONDS)


async def delete_old_events(api: Api, before: float) -> None:
    """Delete the events last written before a moment."""
    served = api.registry.builtin("", "events")
    for stored in api.store.collection(served.storage).listed(None):
        event = stored.decoded()
        written = [text(entry, "time") for entry in parts(event, "metadata", "managedFields")]
        latest = max([text(event, "metadata", "creationTimestamp"), *written])
        if parse_time(latest).timestamp() < before:
            head = api.head(served, stored.namespace, stored.name)
            if head is not None and head.rv == stored.rv:
                await api.put(served, event, delete=True)
        await asyncio.sleep(0)
