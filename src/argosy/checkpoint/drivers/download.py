"""Restores a checkpoint: fetches chunks, checks every digest, and makes the folder appear when all is there.

The files grow in a hidden folder next to the target. If that is left from a download that broke off, chunks
that are there with the right digest are not fetched again.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from argosy.checkpoint.chunks import Chunk, ChunkIndex, Span, spans
from argosy.checkpoint.drivers.transfers import Transfers
from argosy.checkpoint.manifest import MANIFEST_NAME, Manifest, Part, canonical
from argosy.checkpoint.store import CorruptCheckpointError, StoreError

_BLOCK_BYTES = 1024 * 1024
Fetch = Callable[[Chunk, int], bytes]
"""Returns the content of a chunk, given its length, or raises StoreError."""


def restore(manifest: Manifest, index: ChunkIndex, fetch: Fetch, target: Path) -> None:
    """Write a checkpoint to a folder that does not exist yet."""
    if target.exists():
        raise StoreError(f"{target}: exists already; a checkpoint is restored to a new folder")
    partial_folder = target.with_name(f".{target.name}.{manifest.name}.partial")
    with _disk_errors(target):
        _remove_others(partial_folder, target)
        resumed = partial_folder.exists()
        with Transfers() as transfers:
            for part, listed in zip(manifest.parts, index.parts, strict=True):
                path = partial_folder / part.path
                path.parent.mkdir(parents=True, exist_ok=True)
                _set_size(path, part.size)
                for chunk, span in zip(listed.chunks, spans(part.size, index.chunk_bytes), strict=True):
                    transfers.submit(partial(_restore_chunk, path, chunk, span, fetch, resumed))
        with Transfers() as transfers:
            for part in manifest.parts:
                transfers.submit(partial(_check, partial_folder, part))
        (partial_folder / MANIFEST_NAME).write_bytes(canonical(manifest))
        _flush_folders(partial_folder)
        partial_folder.rename(target)
        _flush(target.parent)


def _restore_chunk(path: Path, chunk: Chunk, span: Span, fetch: Fetch, resumed: bool) -> None:
    with path.open("r+b", buffering=0) as file:
        if resumed:
            stored = os.pread(file.fileno(), span.length, span.offset)
            if hashlib.sha256(stored).hexdigest() == chunk.sha256:
                return
        _write(file.fileno(), fetch(chunk, span.length), span.offset)


def _write(descriptor: int, content: bytes, offset: int) -> None:
    """Write all of the content, which one call may not do."""
    remaining = memoryview(content)
    while remaining:
        written = os.pwrite(descriptor, remaining, offset)
        offset, remaining = offset + written, remaining[written:]


def _check(folder: Path, part: Part) -> None:
    """Compare a whole file with the manifest and flush it; one that differs is removed."""
    path, digest = folder / part.path, hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
        os.fsync(file.fileno())
    if digest.hexdigest() != part.sha256:
        path.unlink()
        raise CorruptCheckpointError(f"{part.path}: the restored file has another digest than the manifest")


def _set_size(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def _remove_others(partial_folder: Path, target: Path) -> None:
    """Remove what broken downloads of other checkpoints to this target have left."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in target.parent.glob(f".{target.name}.step-*.partial"):
        if path != partial_folder:
            shutil.rmtree(path, ignore_errors=True)


def _flush_folders(folder: Path) -> None:
    with (folder / MANIFEST_NAME).open("rb") as file:
        os.fsync(file.fileno())
    for parent, _, _ in os.walk(folder):
        _flush(Path(parent))


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreError(f"{target}: no space left to restore the checkpoint") from error
        raise StoreError(f"{target}: {error.strerror or error}") from error
