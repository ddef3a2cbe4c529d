"""Compares the chunks in a store with the manifest of a checkpoint."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

from argosy.checkpoint.chunks import Chunk, ChunkIndex, spans
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.store import CorruptCheckpointError, MissingObjectError

Fetch = Callable[[Chunk, int], bytes]
_MAX_PROBLEMS = 20


def damaged_chunks(
    manifest: Manifest, index: ChunkIndex, stored: Mapping[str, int], fetch: Fetch
) -> Sequence[str]:
    """Return what is wrong by presence and length; reads only chunks whose length is not the listed one.

    Another version of zstd gives another length, which is no damage.
    """
    problems = []
    for part, listed in zip(manifest.parts, index.parts, strict=True):
        for chunk, span in zip(listed.chunks, spans(part.size, index.chunk_bytes), strict=True):
            length = stored.get(chunk.sha256)
            if length == chunk.stored:
                continue
            if length is None:
                problems.append(f"{part.path}: chunk {chunk.sha256} is missing")
            elif problem := _problem(chunk, span.length, fetch):
                problems.append(f"{part.path}: {problem}")
            if len(problems) >= _MAX_PROBLEMS:
                return problems
    return problems


def find_damage(manifest: Manifest, index: ChunkIndex, fetch: Fetch) -> Sequence[str]:
    """Return what is wrong after reading everything."""
    problems = []
    for part, listed in zip(manifest.parts, index.parts, strict=True):
        digest = hashlib.sha256()
        try:
            for chunk, span in zip(listed.chunks, spans(part.size, index.chunk_bytes), strict=True):
                digest.update(fetch(chunk, span.length))
        except (CorruptCheckpointError, MissingObjectError) as error:
            problems.append(f"{part.path}: {error}")
            continue
        if digest.hexdigest() != part.sha256:
            problems.append(f"{part.path}: has another digest than the manifest")
    return problems[:_MAX_PROBLEMS]


def _problem(chunk: Chunk, length: int, fetch: Fetch) -> str:
    try:
        fetch(chunk, length)
    except (CorruptCheckpointError, MissingObjectError) as error:
        return str(error)
    return ""
