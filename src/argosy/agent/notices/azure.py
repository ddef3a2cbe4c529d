"""Notices of Microsoft Azure: scheduled events that end the machine.

The metadata service lists the events of all machines of a group, and has no long poll. An event that is
acknowledged happens at once instead of at its time, so it is acknowledged when no pod needs the time.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec
from msgspec import Struct

from argosy.agent.notices.base import (
    DEFAULT_ENDPOINT,
    REQUEST_SECONDS,
    Metadata,
    MetadataError,
    Notice,
    Report,
    poll,
    text_of,
)
from argosy.engine.clock import Clock, SystemClock

POLL_SECONDS = 1.0
FIRST_REQUEST_SECONDS = 120.0
"""The first request turns the feature on, which takes up to two minutes."""

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
ENDING = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})
"""Types of events that end what runs on the machine. `Freeze` only pauses it."""


class _Event(Struct, rename="pascal"):
    event_id: str
    event_type: str = ""
    event_status: str = ""
    not_before: str = ""
    resources: tuple[str, ...] = ()


class _Events(Struct, rename="pascal"):
    events: tuple[_Event, ...] = ()


class AzureNotices:
    """Asks for the events of this machine."""

    prefix = "azure-"

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, *, clock: Clock = SystemClock()) -> None:
        self._metadata = Metadata(endpoint, {"Metadata": "true"})
        self._clock = clock
        self._name = ""
        self._timeout = FIRST_REQUEST_SECONDS
        self._started: dict[str, datetime] = {}
        """When events were seen first that have started and therefore have no time any more."""
        self._open: set[str] = set()
        """Ids of the events that may be acknowledged."""

    async def run(self, report: Report) -> None:
        try:
            await poll(self._read, report, POLL_SECONDS)
        finally:
            await self._metadata.close()

    async def acknowledge(self) -> None:
        """Let the events happen now; raises OSError if the metadata service does not accept it."""
        if not self._open:
            return
        events = tuple(self._open)
        body = msgspec.json.encode({"StartRequests": [{"EventId": event} for event in events]})
        response = await self._metadata.send("POST", EVENTS, {"Content-Type": "application/json"}, body)
        text_of(response, "acknowledgement")
        self._open.difference_update(events)

    async def _read(self) -> tuple[Notice, ...]:
        if not self._name:
            self._name = text_of(await self._metadata.get(NAME), "name of the machine")
        response = await self._metadata.get(EVENTS, timeout=self._timeout)
        self._timeout = REQUEST_SECONDS
        if response.status != 200:
            raise MetadataError(f"scheduled events: status {response.status}")
        try:
            events = msgspec.json.decode(response.body, type=_Events).events
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MetadataError(f"scheduled events: {error}") from error
        own = [event for event in events if event.event_type in ENDING and self._name in event.resources]
        ids = {event.event_id for event in own}
        self._started = {event: at for event, at in self._started.items() if event in ids}
        self._open = {event.event_id for event in own if event.event_status == "Scheduled"}
        return tuple(self._notice(event) for event in own)

    def _notice(self, event: _Event) -> Notice:
        source = f"{self.prefix}{event.event_type.lower()}"
        try:
            deadline = parsedate_to_datetime(event.not_before).astimezone(UTC)
        except ValueError:  # none: the event has started
            now = self._clock.now().replace(microsecond=0)
            deadline = self._started.setdefault(event.event_id, now)
        return Notice(source, deadline)
