"""Cuts files into chunks that are stored once, and describes where they are.

A chunk is stored under the SHA-256 of its content. What is stored is a zstd frame if that is shorter, and the
content itself otherwise, so the two can be distinguished by their length: the index has the length of the
content.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from argosy.checkpoint.manifest import Manifest

CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_CHUNK_BYTES: Final = 64 * 1024 * 1024
"""The longest chunk that is read; an index that names longer ones is refused."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class InvalidIndexError(ValueError):
    """The index of a checkpoint's chunks does not fit its manifest."""


class Chunk(Struct, frozen=True, array_like=True, gc=False):
    sha256: str
    stored: int
    """How many bytes are stored."""


class PartChunks(Struct, frozen=True):
    path: str
    chunks: tuple[Chunk, ...]


class ChunkIndex(Struct, frozen=True, kw_only=True, rename="camel"):
    """The chunks of all files of a checkpoint, in the order of its parts."""

    version: int = 1
    chunk_bytes: int = CHUNK_BYTES
    parts: tuple[PartChunks, ...]

    def chunks(self) -> Iterator[Chunk]:
        for part in self.parts:
            yield from part.chunks


class Span(Struct, frozen=True, gc=False):
    """The place of a chunk in its file."""

    offset: int
    length: int


def spans(size: int, chunk_bytes: int = CHUNK_BYTES) -> Sequence[Span]:
    """Return the places of a file's chunks; an empty file has none."""
    return [Span(offset, min(chunk_bytes, size - offset)) for offset in range(0, size, chunk_bytes)]


def chunk_key(sha256: str) -> str:
    """Return the name of a chunk in a store."""
    return f"chunks/{sha256[:2]}/{sha256}"


def encode_index(index: ChunkIndex) -> bytes:
    return msgspec.json.encode(index)


def parse_index(raw: bytes, manifest: Manifest) -> ChunkIndex:
    """Return an index that fits the manifest; raises InvalidIndexError."""
    try:
        index = msgspec.json.decode(raw, type=ChunkIndex)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidIndexError(str(error)) from None
    if not 0 < index.chunk_bytes <= MAX_CHUNK_BYTES:
        raise InvalidIndexError(
            f"chunkBytes: invalid value {index.chunk_bytes}; must be to {MAX_CHUNK_BYTES}"
        )
    if [part.path for part in index.parts] != [part.path for part in manifest.parts]:
        raise InvalidIndexError("parts: must be those of the manifest")
    for part, listed in zip(manifest.parts, index.parts, strict=True):
        wanted = -(-part.size // index.chunk_bytes)
        if len(listed.chunks) != wanted:
            raise InvalidIndexError(f"{part.path}: has {len(listed.chunks)} chunks; must have {wanted}")
        if not all(_SHA256.fullmatch(chunk.sha256) and chunk.stored > 0 for chunk in listed.chunks):
            raise InvalidIndexError(f"{part.path}: has an invalid chunk")
    return index
