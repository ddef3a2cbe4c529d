"""Whether a kind's definition is known to keep Records: until then they are written before pods are made.

One comes back from a write, or a job is read that has one. Where many jobs come at once to an operator that
knows nothing yet, all but the first wait for the answer to its write, a second at most.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_WRITE_WAIT_SECONDS = 1.0
"""Seconds that others wait for the first write under a definition to come back."""


class RecordSupport:
    def __init__(self) -> None:
        self.confirmed = False
        self._changed = False
        self._first: asyncio.Future[None] | None = None
        """The first write under this definition, while it is under way."""

    def confirm_write(self) -> None:
        """A Record that was written is there whole."""
        self.confirmed = True

    def confirm_read(self) -> None:
        """A job has a Record. If the definition has changed, that may have been read before."""
        self.confirmed = self.confirmed or not self._changed

    def on_crd_changed(self, *, jobs_were_read: bool) -> None:
        self.confirmed = False
        self._changed = self._changed or jobs_were_read

    @contextmanager
    def first_write(self) -> Iterator[None]:
        """A Record is being written, and while there is no proof the first is one that others wait for."""
        if self.confirmed or self._first is not None:
            yield
            return
        first = self._first = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._first = None
            first.set_result(None)

    async def wait_for_first_write(self) -> None:
        """Until the first write is over, if it is under way."""
        if self._first is not None:
            await asyncio.wait([self._first], timeout=FIRST_WRITE_WAIT_SECONDS)
