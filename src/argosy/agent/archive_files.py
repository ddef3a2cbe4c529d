"""Archives of checkpoints in the folder of the kubelet. Everything here blocks, and is called in a thread.

Paths come from the status of a backup, which others may have written: only files in that folder whose names
are those of an archive of the same container are ever read or deleted.
"""

import contextlib
import os
import shutil
import tarfile
from datetime import datetime
from pathlib import Path
from typing import IO

import msgspec

from argosy.checkpoint.archives import ContainerName, archive_time

MAX_CONFIG_BYTES = 1 << 20
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
        if archive_time(name, container) is None:
            raise ArchiveError(f"{path[:300]!r} is not an archive of container {container}")
        return self._folder / name

    def list(self, container: ContainerName, since: datetime) -> list[tuple[datetime, Path]]:
        """Return the archives of a container since then with their times, which are in whole seconds."""
        since = since.replace(microsecond=0)
        found: list[tuple[datetime, Path]] = []
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                at = archive_time(entry.name, container)
                if at is not None and at >= since:
                    found.append((at, self._folder / entry.name))
        return sorted(found)

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
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.name.removeprefix("./") == "config.dump" and member.size <= MAX_CONFIG_BYTES:
                        file = archive.extractfile(member)
                        config = msgspec.json.decode(file.read() if file else b"{}")
                        return str(config.get("rootfsImageName") or config.get("rootfsImage") or "")
        except (OSError, tarfile.TarError, msgspec.DecodeError, AttributeError):
            pass
        return ""

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


def _ends_properly(file: IO[bytes]) -> bool:
    """Return True if the members of a tar are followed by its end marker."""
    with tarfile.open(fileobj=file, mode="r:") as archive:
        end = 0
        for member in archive:
            blocks, rest = divmod(member.size, tarfile.BLOCKSIZE)
            end = member.offset_data + (blocks + bool(rest)) * tarfile.BLOCKSIZE
    file.seek(end)
    return file.read(len(_END)) == _END
