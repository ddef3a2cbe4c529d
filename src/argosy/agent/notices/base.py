"""What a source of notices is, and how it asks a metadata service.

A metadata service is asked directly, never through a proxy, and every failure is retried for as long as the
agent runs: a machine whose metadata service restarts must still learn of its end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from argosy.engine.backoff import Backoff
from argosy.engine.logs import Logger
from argosy.wire.client import Client, Response
from argosy.wire.origin import Origin

log = Logger(__name__)

RETRY = Backoff(initial=0.2, maximum=5.0)
REQUEST_SECONDS = 5.0
MAX_BYTES = 1 << 20

DEFAULT_ENDPOINT = "http://169.254.169.254"
"""The address of the metadata service of all three clouds."""


class Notice(Struct, frozen=True):
    """What a cloud announces about the machine."""

    source: str
    """Who announces what, such as `gce-preempted`; the value of the Node's annotation."""
    deadline: datetime
    is_hint: bool = False
    """The machine may be taken back, or not: a reason to save, but not to leave."""


Report = Callable[[tuple[Notice, ...]], None]
"""Called by a source with everything that is announced, each time that it changes."""


class NoticeSource(Protocol):
    """Learns from a cloud what it announces."""

    @property
    def prefix(self) -> str:
        """How the sources of its notices begin: an annotation with this prefix is its own."""
        ...

    async def run(self, report: Report) -> None:
        """Report what is announced until cancelled."""
        ...

    async def acknowledge(self) -> None:
        """Tell the cloud that nothing on the machine needs the time until the deadline any more."""
        ...


class Metadata:
    """A client of a metadata service."""

    def __init__(self, endpoint: str, headers: Mapping[str, str] = {}) -> None:
        self._client = Client(Origin.from_url(endpoint))
        self._headers = headers

    async def get(
        self, target: str, headers: Mapping[str, str] = {}, timeout: float = REQUEST_SECONDS
    ) -> Response:
        """Return the response of a GET, whatever its status; raises OSError if there is none."""
        return await self.send("GET", target, headers, timeout=timeout)

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> Response:
        return await self._client.send(
            method, target, {**self._headers, **headers}, body, timeout=timeout, limit=MAX_BYTES
        )

    async def close(self) -> None:
        await self._client.close()


async def poll(
    read: Callable[[], Awaitable[tuple[Notice, ...]]], report: Report, interval_seconds: float
) -> None:
    """Read what is announced again and again, and report it when it has changed."""
    reported: tuple[Notice, ...] | None = None
    failures = 0
    while True:
        try:
            notices = await read()
        except OSError as error:
            failures += 1
            log.warning("no answer of the metadata service", error=str(error))
            await asyncio.sleep(RETRY.delay(failures))
            continue
        failures = 0
        if notices != reported:
            report(notices)
            reported = notices
        await asyncio.sleep(interval_seconds)


class MetadataError(OSError):
    """A metadata service answered with something else than what was asked for."""


def text_of(response: Response, name: str) -> str:
    """Return the body of a successful response as text; raises MetadataError for any other."""
    if response.status != 200:
        raise MetadataError(f"{name}: status {response.status}")
    return response.body[:1000].decode("utf-8", "replace").strip()
