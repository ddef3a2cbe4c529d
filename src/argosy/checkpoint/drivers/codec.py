"""Compresses chunks for a store, and decompresses and verifies what a store returns."""

import hashlib
import threading
from typing import Final

import zstandard

from argosy.checkpoint.store import CorruptCheckpointError

_LEVEL: Final = 1
"""The fastest regular level of zstd."""
_PROBE_BYTES: Final = 64 * 1024
"""The start of a longer chunk, which is compressed first to see whether the rest is worth the time."""
_MAX_PROBE_RATIO: Final = 0.97
"""A chunk is compressed if its start shrinks to less than this; weights of a neural network hardly shrink."""

_local = threading.local()


def encode(content: bytes) -> bytes:
    """Return what is stored for a chunk: a zstd frame if that is shorter than the content, or the content."""
    probe = content[:_PROBE_BYTES]
    if len(content) > _PROBE_BYTES and len(_compressor().compress(probe)) > len(probe) * _MAX_PROBE_RATIO:
        return content
    compressed = _compressor().compress(content)
    return compressed if len(compressed) < len(content) else content


def decode(stored: bytes, sha256: str, length: int) -> bytes:
    """Return the content of a chunk; raises CorruptCheckpointError unless it has this digest and length.

    What is stored with the length of the content is the content, because a frame is shorter.
    """
    try:
        content = stored if len(stored) == length else zstandard.decompress(stored, max_output_size=length)
    except zstandard.ZstdError as error:
        raise CorruptCheckpointError(f"chunk {sha256}: is damaged ({error})") from None
    if len(content) != length or hashlib.sha256(content).hexdigest() != sha256:
        raise CorruptCheckpointError(f"chunk {sha256}: is damaged")
    return content


def _compressor() -> zstandard.ZstdCompressor:
    """Return the compressor of this thread, because one cannot be shared."""
    compressor = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    assert isinstance(compressor, zstandard.ZstdCompressor)
    return compressor
