"""Reads the layer of a checkpoint's image from its tar, and pushes or archives the image. No daemon is used.

A tar may have many gigabytes: it is read in pieces, in a thread, and never copied as a whole into memory.
"""

import asyncio
import contextlib
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import Image
from argosy.checkpoint.images import BuiltImage, Layer, archive_files, blob_path

READ_BYTES = 1 << 20

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


async def read_layer(path: Path) -> Layer:
    """Return digest and size of a tar; raises RegistryError if it cannot be read."""
    try:
        return await asyncio.to_thread(_read_layer, path)
    except (OSError, zlib.error, EOFError) as error:
        raise RegistryError("InvalidFile", f"{path}: {error}") from error


async def push_image(registry: Registry, image: Image, built: BuiltImage, tar: Path) -> str:
    """Push layer, configuration and manifest, in this order, and return the digest of the manifest.

    What the registry has already is not sent again.
    """
    if await registry.head_manifest(image) == built.digest:
        return built.digest
    await registry.push_blob(image.repository, tar, built.layer.digest)
    await registry.push_blob(image.repository, built.config, built.config_digest)
    return await registry.push_manifest(image, built.manifest)


async def write_archive(path: Path, image: Image, built: BuiltImage, tar: Path) -> None:
    """Write the image as an OCI archive, which exists only if it is complete."""
    try:
        await asyncio.to_thread(_write_archive, path, str(image), built, tar)
    except OSError as error:
        raise RegistryError("InvalidFile", f"{path}: {error}") from error


def _read_layer(path: Path) -> Layer:
    digest, size = hashlib.sha256(), 0
    content = hashlib.sha256()
    compression: Literal["", "gzip"] = ""
    inflate = None
    for piece in _pieces(path):
        if size == 0 and piece.startswith(_ZSTD):
            raise OSError("compressed with zstd; a checkpoint must be a plain tar or compressed with gzip")
        if size == 0 and piece.startswith(_GZIP):
            compression, inflate = "gzip", zlib.decompressobj(wbits=31)
        digest.update(piece)
        size += len(piece)
        if inflate is not None:
            content.update(inflate.decompress(piece))
    stored = f"sha256:{digest.hexdigest()}"
    return Layer(stored, size, f"sha256:{content.hexdigest()}" if inflate else stored, compression)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            yield piece


def _write_archive(path: Path, name: str, built: BuiltImage, tar: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                for member, data in archive_files(built, name).items():
                    archive.addfile(_member(member, len(data)), io.BytesIO(data))
                with tar.open("rb") as layer:
                    archive.addfile(_member(blob_path(built.layer.digest), built.layer.size), layer)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member
