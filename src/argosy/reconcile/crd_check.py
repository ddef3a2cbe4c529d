"""Whether a kind's definition is known to keep Records: until then they are written before pods are made.

One comes back from a write, or a job is read that has one. Where many jobs come at once to an operator that
knows nothing yet, all but the first wait for the answer to its write, a second at most.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds that others wait for the first write under a definition to come back."""


class Proof:
    def __init__(self) -> None:
        self.there = False
        self._changed = False
        self._first: asyncio.Future[None] | None = None
        """The first write under this definition, while it is under way."""

    def record_came_back(self) -> None:
        """A Record that was written is there whole."""
        self.there = True

    def record_was_read(self) -> None:
        """A job has a Record. If the definition has changed, that may have been read before."""
        self.there = self.there or not self._changed

    def definition_changed(self, *, jobs_were_read: bool) -> None:
        self.there = False
        self._changed = self._changed or jobs_were_read

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A Record is being written, and while there is no proof the first is one that others wait for."""
        if self.there or self._first is not None:
            yield
            return
        first = self._first = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._first = None
            first.set_result(None)

    async def first_written(self) -> None:
        """Until the first write is over, if it is under way."""
        if self._first is not None:
            await asyncio.wait([self._first], timeout=PATIENCE)
