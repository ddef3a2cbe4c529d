"""Deletes chunks that no checkpoint refers to, without touching those of an upload under way.

Uploads and sweeps announce themselves with an object before they look for each other. A sweep stops when it
sees an upload; an upload that has seen a sweep checks at its end that all its chunks are still there. An
announcement that is older than the age limit is of a process that was killed, since an upload renews it.
"""

import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from argosy.checkpoint.chunks import chunk_key
from argosy.checkpoint.drivers.buckets import Bucket
from argosy.checkpoint.drivers.layout import CHECKPOINTS, CHUNKS, PARTS, SWEEP, SWEEPS, UPLOADS, folder_of
from argosy.checkpoint.store import StoreError

_RENEWALS: Final = 4
"""How often an announcement is renewed within the age limit."""
_BATCH: Final = 1000
"""Chunks that are listed at a time; the unused ones among them are deleted before the next are listed."""


@contextmanager
def announced_upload(
    bucket: Bucket, now: Callable[[], datetime], age: timedelta
) -> Iterator[Callable[[], None]]:
    """Announce an upload during the block; yields a function that renews the announcement when it is time."""
    announcement = _Announcement(bucket, now, age)
    announcement.write()
    yield announcement.renew
    announcement.remove()


@contextmanager
def announced_restore(
    bucket: Bucket, now: Callable[[], datetime], age: timedelta
) -> Iterator[Callable[[], None]]:
    """Keep sweeps off during the block, like an upload, because a checkpoint is read that others may delete.

    A store that has no room for the announcement, or may only be read, is read all the same.
    """
    announcement = _Announcement(bucket, now, age)

    def renew() -> None:
        with suppress(StoreError):
            announcement.renew()

    with suppress(StoreError):
        announcement.write()
    try:
        yield renew
    finally:
        with suppress(StoreError):
            announcement.remove()


class _Announcement:
    """An object that says that the chunks of a store are used; renewed before it would count as left over."""

    def __init__(self, bucket: Bucket, now: Callable[[], datetime], age: timedelta) -> None:
        self._bucket = bucket
        self._now = now
        self._age = age
        self._key = f"{UPLOADS}{secrets.token_hex(8)}"
        self._renewed = now()

    def write(self) -> None:
        self._bucket.put(self._key, b"upload")
        self._renewed = self._now()

    def renew(self) -> None:
        """Write it again when it is time."""
        if self._now() - self._renewed > self._age / _RENEWALS:
            self.write()

    def remove(self) -> None:
        self._bucket.delete([self._key])


def is_sweeping(bucket: Bucket) -> bool:
    return any(True for _ in bucket.list(SWEEPS))


def has_uploads(bucket: Bucket, since: datetime) -> bool:
    """Return True if there is an announcement of an upload that was made or renewed since then."""
    return any(entry.modified >= since for entry in bucket.list(UPLOADS))


def sweep(bucket: Bucket, references: Callable[[], Collection[str]], before: datetime) -> bool:
    """Delete unused chunks from before a time; returns False if it stopped because of an upload.

    `references` returns the digests of all chunks that are in use; it is called after the announcement.
    """
    bucket.put(SWEEP, b"sweep")
    try:
        if has_uploads(bucket, before):
            return False
        used = {chunk_key(sha256) for sha256 in references()}
        listed = bucket.list(CHUNKS)
        while batch := [*islice(listed, _BATCH)]:
            unused = [entry.key for entry in batch if entry.key not in used and entry.modified < before]
            if unused and has_uploads(bucket, before):
                return False
            bucket.delete(unused)
        _remove_remains(bucket, before)
    finally:
        bucket.delete([SWEEP])
    return True


def _remove_remains(bucket: Bucket, before: datetime) -> None:
    """Remove announcements, parts of pods and folders without a manifest that killed uploads have left."""
    old = [
        entry.key for prefix in (UPLOADS, PARTS) for entry in bucket.list(prefix) if entry.modified < before
    ]
    folders: dict[str, list[str]] = {}
    kept = set()
    for entry in bucket.list(CHECKPOINTS):
        folder = folder_of(entry.key)
        folders.setdefault(folder, []).append(entry.key)
        if entry.key.endswith("/manifest.json") or entry.modified >= before:
            kept.add(folder)
    old += [key for folder, keys in folders.items() if folder not in kept for key in keys]
    bucket.delete(old)
    bucket.remove_unfinished(before)
