"""Archives of checkpoints in the folder of the kubelet. Everything here blocks, and is called in a thread.

Paths come from the status of a backup, which others may have written: only files in that folder whose names
are those of an archive of the same container are ever read or deleted. A name does not say where the
namespace ends and the container begins, so an archive that says in its content that it is of another
container is left alone.
"""

import contextlib
import os
import shutil
import tarfile
import zlib
from datetime import datetime
from pathlib import Path
from typing import IO

import msgspec

from argosy.checkpoint.archives import ContainerName, archive_time

MAX_CONFIG_BYTES = 1 << 20
MIN_FREE_SHARE = 0.1
"""Of the disk: with less, no archive is made. By default the kubelet evicts pods then, of any namespace."""
_NAMESPACE_KEYS = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
_POD_KEYS = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
_CONTAINER_KEYS = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
"""Annotations by which containerd and CRI-O say what container a specification is of."""
_CRIO_LABELS = "io.kubernetes.cri-o.Labels"
"""Annotation of CRI-O with labels as JSON, which may have the latter names."""
_END = bytes(2 * tarfile.BLOCKSIZE)


class ArchiveError(Exception):
    """An archive cannot be used; the message says why."""


class ArchiveFolder:
    """The folder in which the kubelet writes archives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, path: str, container: ContainerName) -> Path:
        """Return the file of a recorded path; raises ArchiveError for that of anything else."""
        name = Path(path).name
        if archive_time(name, container) is None or not self.is_of(self._folder / name, container):
            raise ArchiveError(f"{path[:300]!r} is not an archive of container {container}")
        return self._folder / name

    def list(self, container: ContainerName, since: datetime) -> list[tuple[datetime, Path]]:
        """Return the archives of a container since then with their times, which are in whole seconds."""
        since = since.replace(microsecond=0)
        archives: list[tuple[datetime, Path]] = []
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                at = archive_time(entry.name, container)
                path = self._folder / entry.name
                if at is not None and at >= since and self.is_of(path, container):
                    archives.append((at, path))
        return sorted(archives)

    def is_of(self, path: Path, container: ContainerName) -> bool:
        """Return False if the archive says that it is of another container."""
        annotations = _mapping(_read_json(path, "spec.dump").get("annotations"))
        with contextlib.suppress(msgspec.DecodeError):
            labels = msgspec.json.decode(str(annotations.get(_CRIO_LABELS, "{}")))
            annotations = {**_mapping(labels), **annotations}
        expected = (
            (_NAMESPACE_KEYS, container.namespace),
            (_POD_KEYS, container.pod),
            (_CONTAINER_KEYS, container.container),
        )
        return all(annotations.get(key, value) == value for keys, value in expected for key in keys)

    def check_space(self) -> None:
        """Raise ArchiveError if the disk is so full that an archive could make the kubelet evict pods."""
        existing = next(path for path in (self._folder, *self._folder.absolute().parents) if path.exists())
        disk = shutil.disk_usage(existing)  # the kubelet makes the folder with the first archive
        if disk.free < disk.total * MIN_FREE_SHARE:
            free = f"{disk.free / disk.total:.0%} of the disk is free"
            raise ArchiveError(f"{self._folder}: {free}; must be at least {MIN_FREE_SHARE:.0%}")

    def is_complete(self, path: Path) -> bool:
        """Return True if the kubelet has written the archive to its end."""
        try:
            with path.open("rb") as file:
                if file.read(2) == b"\x1f\x8b":
                    return True  # compressed: its layer is read as a whole later
                file.seek(0)
                return _ends_properly(file)
        except (OSError, tarfile.TarError):
            return False

    def base_image(self, path: Path) -> str:
        """Return the image that the container was started from, as the archive says; empty if it does not."""
        config = _read_json(path, "config.dump")
        return str(config.get("rootfsImageName") or config.get("rootfsImage") or "")

    def store(self, path: Path, folder: Path) -> Path:
        """Copy an archive to another folder, where it exists only if it is complete."""
        target = folder / path.name
        if target.exists() and target.stat().st_size == path.stat().st_size:
            return target
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{path.name}.part"
        try:
            with path.open("rb") as source, partial.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return target


def _read_json(path: Path, name: str) -> dict[str, object]:
    """Return a JSON file of an archive; empty if it is missing or cannot be read."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.removeprefix("./") == name and member.size <= MAX_CONFIG_BYTES:
                    file = archive.extractfile(member)
                    return _mapping(msgspec.json.decode(file.read() if file else b"{}"))
    except (OSError, EOFError, zlib.error, tarfile.TarError, msgspec.DecodeError):
        pass
    return {}


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _ends_properly(file: IO[bytes]) -> bool:
    """Return True if the members of a tar are followed by its end marker."""
    with tarfile.open(fileobj=file, mode="r:") as archive:
        end = 0
        for member in archive:
            blocks, remainder = divmod(member.size, tarfile.BLOCKSIZE)
            end = member.offset_data + (blocks + bool(remainder)) * tarfile.BLOCKSIZE
    file.seek(end)
    return file.read(len(_END)) == _END
