"""Notices of Google Compute Engine: preemption of Spot machines, and maintenance that ends a machine.

Both are values in the metadata service that change. A long poll returns when they do, so that a notice is
known at once. Maintenance by live migration (`MIGRATE_ON_HOST_MAINTENANCE`) ends nothing and is not reported.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlencode

from argosy.agent.notices.base import (
    DEFAULT_ENDPOINT,
    REQUEST_SECONDS,
    RETRY,
    Metadata,
    MetadataError,
    Notice,
    Report,
    text_of,
)
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.logs import Logger

log = Logger(__name__)

LONG_POLL_SECONDS = 60
PREEMPTION_SECONDS = 30.0
"""Time from the preemption notice until the machine is turned off."""
MAINTENANCE_SECONDS = 60.0
GPU_MAINTENANCE_SECONDS = 3600.0
"""Time from the announcement of maintenance until the machine stops; with GPUs it is announced earlier."""

INSTANCE = "/computeMetadata/v1/instance"
HEADERS = {"Metadata-Flavor": "Google"}


class GceNotices:
    """Watches the two values."""

    prefix = "gce-"

    def __init__(
        self, endpoint: str = DEFAULT_ENDPOINT, *, has_gpus: Callable[[], bool], clock: Clock = SystemClock()
    ) -> None:
        self._metadata = Metadata(endpoint, HEADERS)
        self._has_gpus = has_gpus
        self._clock = clock
        self._announced: dict[str, Notice] = {}
        self._known: set[str] = set()

    async def run(self, report: Report) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, seconds in (
                    ("preempted", self._preemption),
                    ("maintenance-event", self._maintenance),
                ):
                    tasks.create_task(self._follow(name, seconds, report))
        finally:
            await self._metadata.close()

    async def acknowledge(self) -> None:
        """Do nothing: a machine is taken back at its time."""

    async def _follow(self, name: str, seconds: Callable[[str], float | None], report: Report) -> None:
        """Follow one value, and report a notice while it announces an end."""
        etag, failures = "", 0
        while True:
            try:
                value, etag = await self._read(name, etag)
            except OSError as error:
                failures += 1
                log.warning("no answer of the metadata service", value=name, error=str(error))
                etag = ""
                await asyncio.sleep(RETRY.delay(failures))
                continue
            failures = 0
            self._update(name, seconds(value), report)

    async def _read(self, name: str, etag: str) -> tuple[str, str]:
        """Return the value and its version; with a version, only once there is another one."""
        target, timeout = f"{INSTANCE}/{name}", REQUEST_SECONDS
        if etag:
            query = {"wait_for_change": "true", "timeout_sec": str(LONG_POLL_SECONDS), "last_etag": etag}
            target, timeout = f"{target}?{urlencode(query)}", LONG_POLL_SECONDS + REQUEST_SECONDS
        response = await self._metadata.get(target, timeout=timeout)
        value = text_of(response, name)
        version = response.headers.get("ETag", "")
        if response.headers.get("Metadata-Flavor") != "Google" or not version:
            raise MetadataError(f"{name}: not an answer of the metadata service")
        return value, version

    def _update(self, name: str, seconds: float | None, report: Report) -> None:
        source = f"{self.prefix}{name.removesuffix('-event')}"
        first = name not in self._known
        self._known.add(name)
        if seconds is None:
            if self._announced.pop(name, None) is None and not first:
                return
        elif name in self._announced:
            return
        else:
            deadline = self._clock.now() + timedelta(seconds=seconds)
            self._announced[name] = Notice(source, deadline)
        if len(self._known) == 2 or self._announced:
            report(tuple(self._announced.values()))

    def _preemption(self, value: str) -> float | None:
        return PREEMPTION_SECONDS if value == "TRUE" else None

    def _maintenance(self, value: str) -> float | None:
        if value != "TERMINATE_ON_HOST_MAINTENANCE":
            return None
        return GPU_MAINTENANCE_SECONDS if self._has_gpus() else MAINTENANCE_SECONDS
