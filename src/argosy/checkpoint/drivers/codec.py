"""Compresses chunks for a store and checks what comes back."""

import hashlib
import threading
from typing import Final

import zstandard

from argosy.checkpoint.store import CorruptCheckpointError

_LEVEL: Final = 1
_PROBE_BYTES: Final = 64 * 1024
_WORTHWHILE: Final = 0.97
"""Compression below this ratio is worth its time; weights of a neural network hardly shrink."""

_local = threading.local()


def encode(content: bytes) -> bytes:
    """Return what is stored for a chunk: a zstd frame if it is shorter, or else the content."""
    probe = content[:_PROBE_BYTES]
    if len(content) > _PROBE_BYTES and len(_compressor().compress(probe)) > len(probe) * _WORTHWHILE:
        return content
    compressed = _compressor().compress(content)
    return compressed if len(compressed) < len(content) else content


def decode(stored: bytes, sha256: str, length: int) -> bytes:
    """Return the content of a chunk; raises CorruptCheckpointError unless it has this digest and length."""
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
