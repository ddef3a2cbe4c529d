"""A store of checkpoints in a folder or a bucket; see `layout` for its objects.

The order of writes is what makes it safe: chunks, then the index, then the manifest. So an upload that is
killed leaves only objects that nothing refers to.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from argosy.checkpoint import chunks as indexes
from argosy.checkpoint.chunks import Chunk, ChunkIndex, InvalidIndexError, chunk_key
from argosy.checkpoint.drivers import download, layout
from argosy.checkpoint.drivers.buckets import Bucket
from argosy.checkpoint.drivers.checks import damaged_chunks, find_damage
from argosy.checkpoint.drivers.choosing import find_newest, problem_in
from argosy.checkpoint.drivers.codec import decode
from argosy.checkpoint.drivers.sweep import (
    announced_restore,
    announced_upload,
    has_uploads,
    is_sweeping,
    sweep,
)
from argosy.checkpoint.drivers.upload import Upload
from argosy.checkpoint.manifest import InvalidManifestError, Manifest, canonical, parse_manifest
from argosy.checkpoint.merging import Merged, PodPart, merge
from argosy.checkpoint.retention import newest_first, select_deletions
from argosy.checkpoint.store import (
    CorruptCheckpointError,
    Latest,
    MissingObjectError,
    Saved,
    Scan,
    Skipped,
    StoreError,
)

SWEEP_AGE: Final = timedelta(hours=1)
"""How old the remains of an upload must be before they are deleted."""
_COMPARED: Final = 3
"""How many earlier checkpoints are searched for equal chunks."""


def _now() -> datetime:
    return datetime.now(UTC)


class ObjectStore:
    def __init__(
        self, bucket: Bucket, sweep_age: timedelta = SWEEP_AGE, now: Callable[[], datetime] = _now
    ) -> None:
        self._bucket = bucket
        self._sweep_age = sweep_age
        self._now = now

    @property
    def uri(self) -> str:
        return self._bucket.uri

    def publish(self, folder: Path, manifest: Manifest) -> Saved:
        """Store a folder's checkpoint; other pods may publish their part of it meanwhile."""
        started = time.monotonic()
        with announced_upload(self._bucket, self._now, self._sweep_age) as renew:
            swept = is_sweeping(self._bucket)
            upload = Upload(self._bucket, self._reusable_chunks(), renew)
            index = upload.run(folder, manifest)
            if swept or is_sweeping(self._bucket):
                index = upload.restore_missing(folder, manifest, self._stored_chunks())
            merged = self._write(manifest, index)
        whole = merged.manifest if merged else manifest
        return Saved(
            manifest=whole,
            complete=merged is not None,
            uri=self.uri,
            seconds=time.monotonic() - started,
            uploaded=upload.uploaded,
        )

    def scan(self) -> Scan:
        """Return all checkpoints, and those whose manifest cannot be used."""
        found, skipped, vanished = [], [], False
        for entry in self._bucket.list(layout.CHECKPOINTS):
            if name := layout.name_of_manifest(entry.key):
                try:
                    manifest = parse_manifest(self._bucket.get(entry.key, layout.MAX_MANIFEST_BYTES))
                except MissingObjectError:
                    vanished = True  # It was pruned meanwhile.
                    continue
                except (InvalidManifestError, CorruptCheckpointError) as error:
                    skipped.append(Skipped(name, str(error)))
                    continue
                if manifest.name == name:
                    found.append(manifest)
                else:
                    skipped.append(Skipped(name, f"its manifest has the digest {manifest.digest}"))
        return Scan(tuple(newest_first(found)), tuple(skipped), vanished)

    def list(self) -> Sequence[Manifest]:
        """Return the complete checkpoints, the newest first."""
        return [*self.scan().manifests]

    def latest(self, verify: bool = True) -> Manifest | None:
        """Return the newest checkpoint whose chunks are there."""
        return self.find_latest(verify).manifest

    def find_latest(self, verify: bool = True) -> Latest:
        """Return the newest checkpoint whose chunks are there, and the newer ones that were skipped."""
        scan = self.scan()
        if not verify:
            return find_newest(scan, lambda _: "")
        stored = self._stored_chunks() if scan.manifests else {}
        return find_newest(scan, lambda manifest: self._quick_problem(manifest, stored))

    def restore(self, manifest: Manifest, target: Path) -> None:
        """Write a checkpoint to a folder, which exists only when every digest was verified."""
        download.restore(manifest, self._index(manifest), self._fetch, target)

    def restore_beside_saves(self, manifest: Manifest, target: Path) -> None:
        """Restore a checkpoint of another pod, which may save newer ones and delete this one meanwhile."""
        with announced_restore(self._bucket, self._now, self._sweep_age) as renew:

            def fetch(chunk: Chunk, length: int) -> bytes:
                renew()
                return self._fetch(chunk, length)

            download.restore(manifest, self._index(manifest), fetch, target)

    def restore_latest(self, target: Path) -> Latest:
        """Restore the newest checkpoint that can be restored, and tell which were skipped."""
        return find_newest(self.scan(), lambda manifest: problem_in(lambda: self.restore(manifest, target)))

    def verify(self, manifest: Manifest) -> Sequence[str]:
        """Return what is wrong with a checkpoint; reads all of it."""
        try:
            return find_damage(manifest, self._index(manifest), self._fetch)
        except (CorruptCheckpointError, MissingObjectError) as error:
            return [str(error)]

    def prune(self, keep_last: int, keep: Collection[str] = ()) -> Sequence[str]:
        """Delete older checkpoints and what killed uploads have left; returns the names of deleted ones."""
        deleted = select_deletions(self.list(), keep_last, keep)
        for manifest in deleted:
            self._bucket.delete([layout.manifest_key(manifest.name)])
            self._bucket.delete([layout.index_key(manifest.name)])
        before = self._now() - self._sweep_age
        sweep(self._bucket, lambda: self._used_chunks(before), before)
        return [manifest.name for manifest in deleted]

    def _write(self, manifest: Manifest, index: ChunkIndex) -> Merged | None:
        """Write index and manifest, or the part of a pod; returns the checkpoint if it is complete."""
        merged: Merged | None = Merged(manifest, index)
        prefix = ""
        if manifest.ranks:
            prefix = layout.parts_prefix(manifest)
            part = msgspec.json.encode(PodPart(manifest, index))
            self._bucket.put(f"{prefix}{manifest.ranks[0]}.json", part)
            merged = merge(self._pod_parts(prefix))
        if merged is not None:
            name = merged.manifest.name
            self._bucket.put(layout.index_key(name), indexes.encode_index(merged.index))
            self._bucket.put(layout.manifest_key(name), canonical(merged.manifest))
            if prefix:
                self._bucket.delete([entry.key for entry in self._bucket.list(prefix)])
        return merged

    def _pod_parts(self, prefix: str) -> Sequence[PodPart]:
        """Return the parts of pods that can be read; another pod may delete them meanwhile."""
        parts = []
        for entry in self._bucket.list(prefix):
            try:
                raw = self._bucket.get(entry.key, layout.MAX_INDEX_BYTES)
                part = msgspec.json.decode(raw, type=PodPart)
                parse_manifest(canonical(part.manifest))
                indexes.parse_index(indexes.encode_index(part.index), part.manifest)
            except (MissingObjectError, CorruptCheckpointError, msgspec.DecodeError):
                continue
            except (InvalidManifestError, InvalidIndexError):
                continue
            parts.append(part)
        return parts

    def _index(self, manifest: Manifest) -> ChunkIndex:
        key = layout.index_key(manifest.name)
        try:
            return indexes.parse_index(self._bucket.get(key, layout.MAX_INDEX_BYTES), manifest)
        except InvalidIndexError as error:
            raise CorruptCheckpointError(f"{key}: {error}") from None

    def _fetch(self, chunk: Chunk, length: int) -> bytes:
        stored = self._bucket.get(chunk_key(chunk.sha256), length)
        return decode(stored, chunk.sha256, length)

    def _quick_problem(self, manifest: Manifest, stored: Mapping[str, int]) -> str:
        try:
            damaged = damaged_chunks(manifest, self._index(manifest), stored, self._fetch)
        except (CorruptCheckpointError, MissingObjectError) as error:
            return str(error)
        return damaged[0] if damaged else ""

    def _stored_chunks(self, since: datetime = datetime.min.replace(tzinfo=UTC)) -> dict[str, int]:
        """Return the stored length of all chunks, or of those written after a time."""
        return {
            entry.key.rpartition("/")[2]: entry.size
            for entry in self._bucket.list(layout.CHUNKS)
            if entry.modified >= since
        }

    def _reusable_chunks(self) -> dict[str, int]:
        """Return the lengths of chunks that need no upload: of the newest checkpoints and recent uploads."""
        lengths: dict[str, int] = {}
        for manifest in self.list()[:_COMPARED]:
            try:
                lengths |= {chunk.sha256: chunk.stored for chunk in self._index(manifest).chunks()}
            except StoreError:
                continue
        age = self._sweep_age / 2
        others = sum(1 for _ in self._bucket.list(layout.UPLOADS)) - 1
        if others and has_uploads(self._bucket, self._now() - age):
            lengths |= self._stored_chunks(self._now() - age)
        return lengths

    def _used_chunks(self, since: datetime) -> set[str]:
        """Return the chunks of all checkpoints, and of parts of pods that are not too old."""
        used: set[str] = set()
        for manifest in self.list():
            with suppress(CorruptCheckpointError, MissingObjectError):
                used |= {chunk.sha256 for chunk in self._index(manifest).chunks()}
        for entry in self._bucket.list(layout.PARTS):
            if entry.modified >= since:
                for part in self._pod_parts(entry.key.rpartition("/")[0] + "/"):
                    used |= {chunk.sha256 for chunk in part.index.chunks()}
        return used
