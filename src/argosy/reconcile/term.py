"""Checks that a cached job is recent enough to be acted upon without writing its Record first.

Safety comes from writing the Record first, at the resourceVersion that was observed: if the cache lags behind
an earlier leader, that write is a conflict. A deferred Record has no such precondition. So Records are
deferred only for jobs of which the cache shows everything that was written before this term of leadership:
their version, or that of the watch, is not below the one that a consistent read returned when the term began.
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
        self._start_version: int | None = None
        """The API server's version at some time after this term began; None until it was read."""
        self._lock = asyncio.Lock()

    async def begin(self) -> None:
        """Read the version: whatever is written later is written in this term."""
        self._start_version = await self._latest_version()

    def end(self) -> None:
        """Forget the version: the next term begins at a later one."""
        self._start_version = None

    async def shows_earlier_writes(self, job: T) -> bool:
        """Return True if the cached job includes all that was written to it before this term."""
        async with self._lock:
            if self._start_version is None:
                self._start_version = await self._latest_version()
        return (
            self._start_version is not None
            and max(version_of(job), self._jobs.observed_version) >= self._start_version
        )

    async def confirm(self, job: T) -> bool:
        """Return True if the cached job includes all earlier writes, or is what the API server has now.

        Needed by a reconcile whose Record is unchanged: no conflict would keep it from repeating what an
        earlier leader has done.
        """
        if await self.shows_earlier_writes(job):
            return True
        meta = job.metadata
        try:
            current = await self._client.get(self._jobs.kind, meta.name, meta.namespace)
        except NotFound:
            return False
        self._jobs.put(current)
        return version_of(current) == version_of(job)

    async def _latest_version(self) -> int | None:
        try:
            return await self._client.latest_version(self._jobs.kind, self._jobs.namespace)
        except NotFound:
            return 0  # the kind is not defined yet: no job was written before
        except ApiError as error:
            kind = self._jobs.kind.resource.kind
            log.warning("cannot read the latest version", kind=kind, error=str(error))
            return None
