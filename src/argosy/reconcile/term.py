"""Tells whether a cached job is recent enough to be acted upon without writing its Record first.

Safety comes from writing the Record first, at the resourceVersion that was seen: if the cache lags behind an
earlier leader, that write is refused. A deferred Record has no such guard. So Records are deferred only for
jobs of which the cache shows all that was written before this term of leadership began: they are of a later
version, or the watch has come that far. One consistent read at the beginning tells which version that is.
"""

import asyncio
from typing import Generic

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.engine.objects import T, version_of

log = Logger(__name__)


class Term(Generic[T]):
    """One term of leadership, as far as the jobs of one kind are concerned."""

    def __init__(self, client: Client, jobs: Cache[T]) -> None:
        self._client = client
        self._jobs = jobs
        self._began_at: int | None = None
        """The API server's version at a moment after this term began; None until it was asked."""
        self._asking = asyncio.Lock()

    async def begin(self) -> None:
        """Ask for the version now: jobs that are created from here on are written in this term."""
        self._began_at = await self._ask()

    def end(self) -> None:
        """Forget the version: the next term begins at a later one."""
        self._began_at = None

    async def shows_earlier_writes(self, job: T) -> bool:
        """Return True if the cached job includes all that was written to it before this term."""
        async with self._asking:
            if self._began_at is None:
                self._began_at = await self._ask()
        return (
            self._began_at is not None and max(version_of(job), self._jobs.observed_version) >= self._began_at
        )

    async def confirm(self, job: T) -> bool:
        """Return True if the cached job includes all earlier writes, or is what the API server has now.

        For a reconcile that acts without a write before it: its Record needs no change, so no refusal would
        keep it from repeating what an earlier leader has done.
        """
        if await self.shows_earlier_writes(job):
            return True
        meta = job.metadata
        try:
            found = await self._client.get(self._jobs.kind, meta.name, meta.namespace)
        except NotFound:
            return False
        self._jobs.put(found)
        return version_of(found) == version_of(job)

    async def _ask(self) -> int | None:
        try:
            return await self._client.latest_version(self._jobs.kind, self._jobs.namespace)
        except NotFound:
            return 0  # the kind is not defined yet: no job was written before
        except ApiError as error:
            kind = self._jobs.kind.resource.kind
            log.warning("cannot read the latest version", kind=kind, error=str(error))
            return None
