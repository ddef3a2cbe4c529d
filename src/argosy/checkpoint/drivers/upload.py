"""Uploads the chunks of a checkpoint folder that the store does not have yet.

A file is compared with its digest in the manifest if it was changed after the manifest was written. One that
was not is what the manifest was made from, and need not be read twice; restoring compares all of them.
"""

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from argosy.checkpoint.chunks import CHUNK_BYTES, Chunk, ChunkIndex, PartChunks, Span, chunk_key, spans
from argosy.checkpoint.drivers.codec import encode
from argosy.checkpoint.drivers.transfers import Transfers
from argosy.checkpoint.manifest import MANIFEST_NAME, Manifest, Part
from argosy.checkpoint.store import CorruptCheckpointError


class Sink(Protocol):
    """Where chunks go."""

    def put(self, key: str, content: bytes) -> None:
        """Store a chunk, whole or not at all."""
        ...


class Upload:
    """One upload of a checkpoint.

    `stored` has the stored length of chunks that are in the store. `tick` is called for each chunk, in the
    thread that reads the files.
    """

    def __init__(
        self,
        sink: Sink,
        stored: Mapping[str, int],
        tick: Callable[[], None] = lambda: None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._sink = sink
        self._chunk_bytes = chunk_bytes
        self._stored = dict(stored)
        self._claimed = set(stored)
        self._lock = threading.Lock()
        self._tick = tick
        self.uploaded = 0

    def run(self, folder: Path, manifest: Manifest) -> ChunkIndex:
        """Store all chunks; raises CorruptCheckpointError if a file differs from the manifest."""
        digests: dict[str, list[str]] = {}
        written = _changed_at(folder / MANIFEST_NAME)
        with Transfers() as transfers:
            for part in manifest.parts:
                digests[part.path] = [""] * len(spans(part.size, self._chunk_bytes))
                self._read_part(folder, part, written, digests[part.path], transfers)
        return ChunkIndex(
            chunk_bytes=self._chunk_bytes,
            parts=tuple(
                PartChunks(path, tuple(Chunk(sha256, self._stored[sha256]) for sha256 in sha256s))
                for path, sha256s in digests.items()
            ),
        )

    def restore_missing(self, folder: Path, manifest: Manifest, present: Mapping[str, int]) -> ChunkIndex:
        """Store the chunks that are not in the store any more."""
        self._stored = dict(present)
        self._claimed = set(present)
        return self.run(folder, manifest)

    def _read_part(
        self, folder: Path, part: Part, written: int, digests: list[str], transfers: Transfers
    ) -> None:
        with open_part(folder, part) as file:
            if _is_newer(file, written):
                self._compare_part(file, part, digests, transfers)
                return
        for number, span in enumerate(spans(part.size, self._chunk_bytes)):
            self._tick()
            transfers.submit(partial(self._read_chunk, folder, part, written, span, digests, number))

    def _compare_part(self, file: BinaryIO, part: Part, digests: list[str], transfers: Transfers) -> None:
        """Store a file while it is compared with the manifest."""
        digest = hashlib.sha256()
        for number, span in enumerate(spans(part.size, self._chunk_bytes)):
            self._tick()
            content = file.read(span.length)
            transfers.submit(partial(self._store, content, digests, number))
            digest.update(content)
        if file.read(1) or digest.hexdigest() != part.sha256:
            raise CorruptCheckpointError(f"{part.path}: differs from the manifest; it was changed or damaged")

    def _read_chunk(
        self, folder: Path, part: Part, written: int, span: Span, digests: list[str], number: int
    ) -> None:
        with open_part(folder, part) as file:
            content = os.pread(file.fileno(), span.length, span.offset)
            if len(content) != span.length or _is_newer(file, written):
                raise CorruptCheckpointError(f"{part.path}: was changed while it was read")
        self._store(content, digests, number)

    def _store(self, content: bytes, digests: list[str], number: int) -> None:
        sha256 = hashlib.sha256(content).hexdigest()
        digests[number] = sha256
        with self._lock:
            if sha256 in self._claimed:
                return
            self._claimed.add(sha256)
        stored = encode(content)
        self._sink.put(chunk_key(sha256), stored)
        with self._lock:
            self._stored[sha256] = len(stored)
            self.uploaded += len(stored)


def _is_newer(file: BinaryIO, written: int) -> bool:
    return os.fstat(file.fileno()).st_ctime_ns > written


def _changed_at(path: Path) -> int:
    """Return when a file was changed last; 0 if it does not exist, so that everything is newer."""
    try:
        return path.stat(follow_symlinks=False).st_ctime_ns
    except OSError:
        return 0


def open_part(folder: Path, part: Part) -> BinaryIO:
    """Open a file of a checkpoint without following symbolic links; raises CorruptCheckpointError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        *parents, name = part.path.split("/")
        for parent in parents:
            descriptor = _descend(descriptor, parent, os.O_DIRECTORY)
        file = os.fdopen(_descend(descriptor, name, os.O_NONBLOCK), "rb")
    except OSError as error:
        raise CorruptCheckpointError(f"{part.path}: {error.strerror}") from None
    info = os.fstat(file.fileno())
    if not stat.S_ISREG(info.st_mode) or info.st_size != part.size:
        file.close()
        raise CorruptCheckpointError(f"{part.path}: must be a file of {part.size} bytes")
    return file


def _descend(folder: int, name: str, flags: int) -> int:
    """Open an entry of a folder and close the folder."""
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    finally:
        os.close(folder)
