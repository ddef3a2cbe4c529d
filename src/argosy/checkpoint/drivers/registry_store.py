"""A store of checkpoints in a repository of an OCI registry.

A checkpoint is an image that nobody runs. Its tag is the checkpoint's name and its configuration the
canonical manifest, so the digest of the configuration is that of the checkpoint. The first layer is the
index, the others are chunks, which keep the registry from deleting them. The image is pushed last: before,
nothing of an upload can be seen. Space is freed by the registry's own garbage collection.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from argosy.checkpoint.chunks import (
    CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    Chunk,
    ChunkIndex,
    InvalidIndexError,
    encode_index,
    parse_index,
)
from argosy.checkpoint.drivers import download
from argosy.checkpoint.drivers.checks import find_damage
from argosy.checkpoint.drivers.choosing import find_newest, problem_in
from argosy.checkpoint.drivers.codec import decode
from argosy.checkpoint.drivers.registry import Content, Descriptor, Registry, digest_of
from argosy.checkpoint.drivers.registry_connection import RegistryConnection
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

IMAGE_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CHECKPOINT_TYPE: Final = "application/vnd.argosy.checkpoint.v1+json"
INDEX_TYPE: Final = "application/vnd.argosy.checkpoint.index.v1+json"
CHUNK_TYPE: Final = "application/vnd.argosy.checkpoint.chunk.v1"
MAX_BLOB_BYTES: Final = 256 * 1024 * 1024
MAX_LAYERS: Final = 10_000
"""Registries accept manifests of four mebibytes, which is twice as many layers."""

PART_AGE: Final = timedelta(hours=1)
"""How much older than the newest checkpoint the files of a pod must be before they are deleted."""
_COMPARED: Final = 3
_TAG = re.compile(r"step-\d+-[0-9a-f]{12}")
_PART = re.compile(r"parts-\d+-\d+-\d+-\d+")


class StoredIndex(Struct, frozen=True):
    """The first layer: the chunks of all files, and the blob of each chunk."""

    index: ChunkIndex
    blobs: Mapping[str, str]
    """The digest of what is stored, by the SHA-256 of the chunk."""


class _Blobs:
    """Pushes chunks and remembers their digests."""

    def __init__(self, connection: RegistryConnection, known: Mapping[str, str]) -> None:
        self._connection = connection
        self.digests = dict(known)

    def put(self, key: str, content: bytes) -> None:
        digest = digest_of(content)
        self._connection.push_blob(content, digest)
        self.digests[key.rpartition("/")[2]] = digest


class RegistryStore:
    def __init__(self, connection: RegistryConnection) -> None:
        self._connection = connection

    @property
    def uri(self) -> str:
        return self._connection.uri

    def publish(self, folder: Path, manifest: Manifest) -> Saved:
        """Store a folder's checkpoint; other pods may publish their part of it meanwhile."""
        started = time.monotonic()
        known = self._known_chunks()
        try:
            uploaded, merged = self._publish(folder, manifest, known)
        except (CorruptCheckpointError, MissingObjectError):
            raise
        except StoreError:
            if not known:
                raise
            # A chunk of an earlier checkpoint may have been deleted with it.
            uploaded, merged = self._publish(folder, manifest, {})
        return Saved(
            manifest=merged.manifest if merged else manifest,
            complete=merged is not None,
            uri=self.uri,
            seconds=time.monotonic() - started,
            uploaded=uploaded,
        )

    def scan(self) -> Scan:
        """Return all checkpoints, and those whose manifest cannot be used."""
        found, skipped = [], []
        for tag in self._tags(_TAG.fullmatch):
            try:
                manifest = self._manifest(tag)
            except MissingObjectError:
                continue  # It was deleted meanwhile.
            except CorruptCheckpointError as error:
                skipped.append(Skipped(tag, str(error)))
                continue
            if manifest.name == tag:
                found.append(manifest)
            else:
                skipped.append(Skipped(tag, f"its manifest has the digest {manifest.digest}"))
        return Scan(tuple(newest_first(found)), tuple(skipped))

    def list(self) -> Sequence[Manifest]:
        """Return the complete checkpoints, the newest first."""
        return [*self.scan().manifests]

    def latest(self, verify: bool = True) -> Manifest | None:
        """Return the newest checkpoint whose chunks are there."""
        return self.find_latest(verify).manifest

    def find_latest(self, verify: bool = True) -> Latest:
        """Return the newest checkpoint whose chunks are there, and the newer ones that were skipped."""
        return find_newest(self.scan(), self._quick_problem if verify else lambda _: "")

    def restore(self, manifest: Manifest, target: Path) -> None:
        """Write a checkpoint to a folder, which exists only when every digest was verified."""
        stored = self._index(manifest.name, manifest)
        download.restore(manifest, stored.index, self._fetcher(stored), target)

    def restore_latest(self, target: Path) -> Latest:
        """Restore the newest checkpoint that can be restored, and tell which were skipped."""
        return find_newest(self.scan(), lambda manifest: problem_in(lambda: self.restore(manifest, target)))

    def verify(self, manifest: Manifest) -> Sequence[str]:
        """Return what is wrong with a checkpoint; reads all of it."""
        try:
            stored = self._index(manifest.name, manifest)
            return find_damage(manifest, stored.index, self._fetcher(stored))
        except (CorruptCheckpointError, MissingObjectError) as error:
            return [str(error)]

    def prune(self, keep_last: int, keep: Collection[str] = ()) -> Sequence[str]:
        """Delete older checkpoints; the registry frees their space. Returns the names of deleted ones."""
        manifests = self.list()
        deleted = select_deletions(manifests, keep_last, keep)
        for manifest in deleted:
            self._delete(manifest.name)
        if manifests and (newest := _created_at(manifests[0])):
            # The clock of the node on which it was saved may be ahead.
            self._delete_parts(min(newest, datetime.now(UTC)) - PART_AGE)
        return [manifest.name for manifest in deleted]

    def _delete_parts(self, before: datetime) -> None:
        """Delete what pods have pushed for checkpoints that were never completed, and which keeps chunks."""
        for tag in self._tags(_PART.fullmatch):
            with suppress(MissingObjectError, CorruptCheckpointError):
                created = _created_at(self._manifest(tag))
                if created is not None and created < before:
                    self._delete(tag)

    def _publish(
        self, folder: Path, manifest: Manifest, known: Mapping[str, tuple[int, str]]
    ) -> tuple[int, Merged | None]:
        blobs = _Blobs(self._connection, {sha256: digest for sha256, (_, digest) in known.items()})
        lengths = {sha256: length for sha256, (length, _) in known.items()}
        upload = Upload(blobs, lengths, chunk_bytes=_chunk_bytes(manifest))
        index = upload.run(folder, manifest)
        if not manifest.ranks:
            self._push(manifest.name, manifest, index, blobs.digests)
            return upload.uploaded, Merged(manifest, index)
        prefix = f"parts-{manifest.step}-{manifest.attempt}-{manifest.world}-"
        self._push(f"{prefix}{manifest.ranks[0]}", manifest, index, blobs.digests)
        return upload.uploaded, self._merge(prefix)

    def _merge(self, prefix: str) -> Merged | None:
        """Push the checkpoint of several pods if the files of all ranks are there."""
        tags = self._tags(lambda tag: tag.startswith(prefix))
        pods, digests = [], dict[str, str]()
        for tag in tags:
            with suppress(MissingObjectError, CorruptCheckpointError):
                manifest = self._manifest(tag)
                stored = self._index(tag, manifest)
                pods.append(PodPart(manifest, stored.index))
                digests |= stored.blobs
        merged = merge(pods)
        if merged is not None:
            self._push(merged.manifest.name, merged.manifest, merged.index, digests)
            for tag in tags:
                with suppress(StoreError):  # Not every registry allows it.
                    self._delete(tag)
        return merged

    def _push(self, tag: str, manifest: Manifest, index: ChunkIndex, digests: Mapping[str, str]) -> None:
        """Push an image: its blobs, and then the manifest that makes it one."""
        used = {chunk.sha256: chunk.stored for chunk in index.chunks()}
        if len(used) > MAX_LAYERS:
            limit = f"must be at most {MAX_LAYERS}, about 40 GB if several pods have saved it; use a bucket"
            raise StoreError(f"{self.uri}: {tag}: {len(used)} chunks; {limit}")
        stored = msgspec.json.encode(StoredIndex(index, {sha256: digests[sha256] for sha256 in used}))
        config = canonical(manifest)
        for blob in (config, stored):
            self._connection.push_blob(blob, digest_of(blob))
        layers = {digests[sha256]: Descriptor(CHUNK_TYPE, digests[sha256], used[sha256]) for sha256 in used}
        body = {
            "schemaVersion": 2,
            "mediaType": IMAGE_TYPE,
            "artifactType": CHECKPOINT_TYPE,
            "config": Descriptor(CHECKPOINT_TYPE, digest_of(config), len(config)),
            "layers": [Descriptor(INDEX_TYPE, digest_of(stored), len(stored)), *layers.values()],
        }
        image = self._connection.repository.image(tag)
        self._connection.call(lambda client: client.push_manifest(image, msgspec.json.encode(body)))

    def _tags(self, accept: Callable[[str], object]) -> Sequence[str]:
        repository = self._connection.repository
        try:
            return sorted(filter(accept, self._connection.call(lambda client: client.tags(repository))))
        except MissingObjectError:
            return []

    def _content(self, tag: str) -> Content:
        image = self._connection.repository.image(tag)
        return self._connection.call(lambda client: client.get_manifest(image)).content

    def _manifest(self, tag: str) -> Manifest:
        config = self._content(tag).config
        if config is None or config.media_type != CHECKPOINT_TYPE:
            raise CorruptCheckpointError(f"{tag}: is not a checkpoint")
        try:
            return parse_manifest(self._connection.get_blob(config.digest, MAX_BLOB_BYTES))
        except (InvalidManifestError, MissingObjectError) as error:
            raise CorruptCheckpointError(f"{tag}: {error}") from None

    def _index(self, tag: str, manifest: Manifest) -> StoredIndex:
        layers = self._content(tag).layers
        if not layers or layers[0].media_type != INDEX_TYPE:
            raise CorruptCheckpointError(f"{tag}: has no index")
        try:
            raw = self._connection.get_blob(layers[0].digest, MAX_BLOB_BYTES)
            stored = msgspec.json.decode(raw, type=StoredIndex)
            parse_index(encode_index(stored.index), manifest)
        except (msgspec.DecodeError, InvalidIndexError, UnicodeDecodeError) as error:
            raise CorruptCheckpointError(f"{tag}: index: {error}") from None
        if missing := [chunk.sha256 for chunk in stored.index.chunks() if chunk.sha256 not in stored.blobs]:
            raise CorruptCheckpointError(f"{tag}: index: chunk {missing[0]} has no blob")
        return stored

    def _fetcher(self, stored: StoredIndex) -> Callable[[Chunk, int], bytes]:
        def fetch(chunk: Chunk, length: int) -> bytes:
            content = self._connection.get_blob(stored.blobs[chunk.sha256], length)
            return decode(content, chunk.sha256, length)

        return fetch

    def _quick_problem(self, manifest: Manifest) -> str:
        try:
            blobs = self._index(manifest.name, manifest).blobs
        except (CorruptCheckpointError, MissingObjectError) as error:
            return str(error)
        repository = self._connection.repository
        for sha256, digest in blobs.items():
            if not self._connection.call(partial(Registry.has_blob, repository=repository, digest=digest)):
                return f"chunk {sha256} is missing"
        return ""

    def _known_chunks(self) -> dict[str, tuple[int, str]]:
        """Return length and digest of the chunks of some checkpoints."""
        known: dict[str, tuple[int, str]] = {}
        for manifest in self.list()[:_COMPARED]:
            with suppress(CorruptCheckpointError, MissingObjectError):
                stored = self._index(manifest.name, manifest)
                for chunk in stored.index.chunks():
                    known[chunk.sha256] = (chunk.stored, stored.blobs[chunk.sha256])
        return known

    def _delete(self, tag: str) -> None:
        image = self._connection.repository.image(tag)
        self._connection.call(lambda client: client.delete_manifest(image))


def _created_at(manifest: Manifest) -> datetime | None:
    return datetime.fromisoformat(manifest.created) if manifest.created else None


def _chunk_bytes(manifest: Manifest) -> int:
    """Return the length of chunks with which an image has not too many layers.

    Pods that save a part each must use the same one, and do not know how large the parts of others are.
    """
    length = CHUNK_BYTES
    if manifest.ranks:
        return length
    while length < MAX_CHUNK_BYTES and manifest.size // length + len(manifest.parts) > MAX_LAYERS:
        length *= 2
    return length
