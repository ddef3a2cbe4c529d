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

_PAUSE = 0.2
_LAST_WORDS = 5.0
"""Seconds that a pod waits for the last lines of the one before it."""


class Origin(Struct, frozen=True):
    """Whose log it is."""

    namespace: str
    pod: str
    uid: str
    container: str


class Transcript:
    def __init__(
        self,
        client: Client,
        origin: Origin,
        say: Callable[[str], None],
        broken: Callable[[], None],
        tail: int | None = None,
        before: "Transcript | None" = None,
    ) -> None:
        self._client = client
        self._origin = origin
        self._say = say
        self._broken = broken
        self._tail = tail
        self._before = before
        """Of the pod that had its place until it was gone."""
        self._place = Place()
        self._next: int | None = None
        self._newest = -1
        self._gone = False
        self._by_uid = True
        self._reading: asyncio.Task[None] | None = None

    @property
    def reading(self) -> asyncio.Task[None] | None:
        """The work under way; none when all that has been printed so far has been said."""
        return self._reading if self._reading and not self._reading.done() else None

    def begun(self, run: int) -> None:
        """The container has begun that run of it, counted from 0."""
        if run > self._newest:
            self._newest = run
            self._read_on()

    def gone(self) -> None:
        """The pod is no more: what is left to read is all that there will be."""
        if not self._gone:
            self._gone = True
            self._read_on()

    def _read_on(self) -> None:
        if self.reading is None:
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        await self._let_finish()
        if self._next is None:
            self._next = 0 if self._tail is None else max(0, self._newest)
        while self._next <= self._newest or self._gone:
            if not await self._read_run(self._next) and self._next > self._newest:
                return
            self._next += 1

    async def _let_finish(self) -> None:
        before, self._before = self._before, None
        if before is not None and before._gone and (last_words := before.reading):
            await asyncio.wait((last_words,), timeout=_LAST_WORDS)

    async def _read_run(self, run: int) -> bool:
        """Whether there was anything to read of that run."""
        while True:
            try:
                async for text in self._place.unseen(lines(self._open(run))):
                    self._say(text)
                return True
            except (Gone, BadRequest):
                return False
            except NotFound:
                if self._gone or not self._by_uid:
                    return False
                self._by_uid = False
            except ApiError:
                self._broken()
                await asyncio.sleep(_PAUSE)

    def _open(self, run: int) -> AsyncGenerator[bytes, None]:
        origin = self._origin
        return self._client.logs(
            origin.pod,
            origin.namespace,
            container=origin.container,
            follow=True,
            timestamps=True,
            tail=None if self._place.stamp else self._tail,
            uid=origin.uid if self._by_uid else "",
            run=run if self._by_uid else None,
        )


class Place:
    """How far a log has been read, so that a stream opened again goes on after the last line."""

    def __init__(self) -> None:
        self.stamp = ""
        self._same = 0
        """Lines read that carry this very time."""

    async def unseen(self, stamped: AsyncIterable[str]) -> AsyncIterator[str]:
        """The lines after the place, without their times. Times are of one width, so they compare as text."""
        stop, skip = self.stamp, self._same
        async for line in stamped:
            stamp, _, text = line.partition(" ")
            if stamp < stop:
                continue
            if stamp == stop and skip:
                skip -= 1
                continue
            self._same = self._same + 1 if stamp == self.stamp else 1
            self.stamp = stamp
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
