"""Reads the log of one container of one pod: every line once, in order, across broken streams and restarts.

A stream that breaks is opened again and continues after the last line that was read. The log is requested by
the pod's uid, because another pod of the same name may replace the pod meanwhile, and because Argosy's own
API server keeps logs for a while after a pod is deleted. Other API servers know logs by name only; they are
read as long as the pod exists. The runs of a container that restarts are read one after the other. A pod
that replaces another one is read after it: the last lines of the old one may be late if its node was
unreachable.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, BadRequest, Gone, NotFound

RETRY_SECONDS = 0.2
DRAIN_SECONDS = 5.0
"""How long a pod's log waits for the last lines of the pod that it replaces."""


class LogSource(Struct, frozen=True):
    """Identifies one container of one pod."""

    namespace: str
    pod: str
    uid: str
    container: str


class ContainerLog:
    """Reads the log of one container in a background task, as long as the container has runs to read."""

    def __init__(
        self,
        client: Client,
        source: LogSource,
        print_line: Callable[[str], None],
        on_broken_stream: Callable[[], None],
        tail: int | None = None,
        predecessor: "ContainerLog | None" = None,
    ) -> None:
        self._client = client
        self._source = source
        self._print_line = print_line
        self._on_broken_stream = on_broken_stream
        self._tail = tail
        self._predecessor = predecessor
        """The log of the pod that this pod replaces."""
        self._position = LogPosition()
        self._next_run: int | None = None
        self._newest_run = -1
        self._pod_deleted = False
        self._by_uid = True
        self._task: asyncio.Task[None] | None = None

    @property
    def reading(self) -> asyncio.Task[None] | None:
        """The task that reads; None if everything that was logged so far has been printed."""
        return self._task if self._task and not self._task.done() else None

    def run_started(self, run: int) -> None:
        """Read up to this run of the container, counted from 0."""
        if run > self._newest_run:
            self._newest_run = run
            self._start_reading()

    def pod_deleted(self) -> None:
        """Read what is left: nothing more will be logged."""
        if not self._pod_deleted:
            self._pod_deleted = True
            self._start_reading()

    def _start_reading(self) -> None:
        if self.reading is None:
            self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        await self._wait_for_predecessor()
        if self._next_run is None:
            self._next_run = 0 if self._tail is None else max(0, self._newest_run)
        while self._next_run <= self._newest_run or self._pod_deleted:
            if not await self._read_run(self._next_run) and self._next_run > self._newest_run:
                return
            self._next_run += 1

    async def _wait_for_predecessor(self) -> None:
        predecessor, self._predecessor = self._predecessor, None
        if predecessor is not None and predecessor._pod_deleted and (reading := predecessor.reading):
            await asyncio.wait((reading,), timeout=DRAIN_SECONDS)

    async def _read_run(self, run: int) -> bool:
        """Print the rest of one run; return False if the server has no log of it."""
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
        source = self._source
        return self._client.logs(
            source.pod,
            source.namespace,
            container=source.container,
            follow=True,
            timestamps=True,
            tail=None if self._position.timestamp else self._tail,
            uid=source.uid if self._by_uid else "",
            run=run if self._by_uid else None,
        )


class LogPosition:
    """How far a log has been read, so that a stream that is opened again continues after the last line."""

    def __init__(self) -> None:
        self.timestamp = ""
        self._lines_at_timestamp = 0
        """Number of lines read that carry this timestamp."""

    async def new_lines(self, stamped: AsyncIterable[str]) -> AsyncIterator[str]:
        """Yield the lines after this position without their timestamps, which compare as text."""
        last, skip = self.timestamp, self._lines_at_timestamp
        async for line in stamped:
            timestamp, _, text = line.partition(" ")
            if timestamp < last:
                continue
            if timestamp == last and skip:
                skip -= 1
                continue
            self._lines_at_timestamp = self._lines_at_timestamp + 1 if timestamp == self.timestamp else 1
            self.timestamp = timestamp
            yield text


async def lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Yield whole lines out of chunks that may end anywhere."""
    partial_line = b""
    async for chunk in chunks:
        *whole, partial_line = (partial_line + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if partial_line:
        yield partial_line.decode(errors="replace")
