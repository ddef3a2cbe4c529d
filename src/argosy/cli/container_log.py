"""What one container of one pod prints, from its first line to its last, each line once.

Streams break when a part of the control plane goes; they are opened again and go on after the last line. A
pod may be replaced meanwhile by one of the same name, so the log is asked for by the pod's uid, and Argosy's
own API server still has it for a while after the pod is gone. A server that knows no logs by uid is asked by
name, for as long as the pod is there. Runs of a container that restarts are read in their order, and a pod
that has taken the place of another speaks after it: its last lines may be late, if its node was away.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, BadRequest, Gone, NotFound

RETRY_SECONDS = 0.2
DRAIN_SECONDS = 5.0
"""Seconds that a pod waits for the last lines of the one before it."""


class LogSource(Struct, frozen=True):
    """Whose log it is."""

    namespace: str
    pod: str
    uid: str
    container: str


class ContainerLog:
    def __init__(
        self,
        client: Client,
        origin: LogSource,
        say: Callable[[str], None],
        broken: Callable[[], None],
        tail: int | None = None,
        before: "ContainerLog | None" = None,
    ) -> None:
        self._client = client
        self._source = origin
        self._print_line = say
        self._on_broken_stream = broken
        self._tail = tail
        self._predecessor = before
        """Of the pod that had its place until it was gone."""
        self._position = LogPosition()
        self._next_run: int | None = None
        self._newest_run = -1
        self._pod_deleted = False
        self._by_uid = True
        self._reading: asyncio.Task[None] | None = None

    @property
    def reading(self) -> asyncio.Task[None] | None:
        """The work under way; none when all that has been printed so far has been said."""
        return self._reading if self._reading and not self._reading.done() else None

    def run_started(self, run: int) -> None:
        """The container has begun that run of it, counted from 0."""
        if run > self._newest_run:
            self._newest_run = run
            self._start_reading()

    def pod_deleted(self) -> None:
        """The pod is no more: what is left to read is all that there will be."""
        if not self._pod_deleted:
            self._pod_deleted = True
            self._start_reading()

    def _start_reading(self) -> None:
        if self.reading is None:
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        await self._wait_for_predecessor()
        if self._next_run is None:
            self._next_run = 0 if self._tail is None else max(0, self._newest_run)
        while self._next_run <= self._newest_run or self._pod_deleted:
            if not await self._read_run(self._next_run) and self._next_run > self._newest_run:
                return
            self._next_run += 1

    async def _wait_for_predecessor(self) -> None:
        before, self._predecessor = self._predecessor, None
        if before is not None and before._pod_deleted and (last_words := before.reading):
            await asyncio.wait((last_words,), timeout=DRAIN_SECONDS)

    async def _read_run(self, run: int) -> bool:
        """Whether there was anything to read of that run."""
        while True:
            try:
                async for text in self._position.new_lines(lines(self._open(run))):
                    self._print_line(text)
                return True
            except (Gone, BadRequest):
                return False
            except NotFound:
                if self._pod_deleted or not self._by_uid:
                    return False
                self._by_uid = False
            except ApiError:
                self._on_broken_stream()
                await asyncio.sleep(RETRY_SECONDS)

    def _open(self, run: int) -> AsyncGenerator[bytes, None]:
        origin = self._source
        return self._client.logs(
            origin.pod,
            origin.namespace,
            container=origin.container,
            follow=True,
            timestamps=True,
            tail=None if self._position.timestamp else self._tail,
            uid=origin.uid if self._by_uid else "",
            run=run if self._by_uid else None,
        )


class LogPosition:
    """How far a log has been read, so that a stream opened again goes on after the last line."""

    def __init__(self) -> None:
        self.timestamp = ""
        self._lines_at_timestamp = 0
        """Lines read that carry this very time."""

    async def new_lines(self, stamped: AsyncIterable[str]) -> AsyncIterator[str]:
        """The lines after the place, without their times. Times are of one width, so they compare as text."""
        stop, skip = self.timestamp, self._lines_at_timestamp
        async for line in stamped:
            stamp, _, text = line.partition(" ")
            if stamp < stop:
                continue
            if stamp == stop and skip:
                skip -= 1
                continue
            self._lines_at_timestamp = self._lines_at_timestamp + 1 if stamp == self.timestamp else 1
            self.timestamp = stamp
            yield text


async def lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Whole lines out of chunks that end anywhere."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
