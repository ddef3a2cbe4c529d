"""Objects as files of a folder: a disk of this machine, or a volume that several pods mount.

An object is written to `.uploads/`, flushed to the disk and renamed, so a reader sees all of it or nothing.
"""

import errno
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from argosy.checkpoint.drivers.buckets import Entry
from argosy.checkpoint.store import CorruptCheckpointError, MissingObjectError, StoreError

_UPLOADS: Final = ".uploads"
_RENAME_ATTEMPTS: Final = 3
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FolderBucket:
    def __init__(self, root: Path, uri: str) -> None:
        self._root = root
        self._uri = uri

    @property
    def uri(self) -> str:
        return self._uri

    def put(self, key: str, content: bytes) -> None:
        temporary = self._root / _UPLOADS / secrets.token_hex(16)
        target = self._root / key
        with self._errors(key):
            try:
                _write(temporary, content)
                _rename_into(temporary, target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            _flush_folder(target.parent)

    def get(self, key: str, max_bytes: int) -> bytes:
        with self._errors(key), (self._root / key).open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise CorruptCheckpointError(f"{self._uri}/{key}: longer than {max_bytes} bytes")
        return content

    def list(self, prefix: str) -> Iterator[Entry]:
        with self._errors(prefix):
            for parent, folders, files in os.walk(self._root / prefix):
                folders.sort()
                for name in sorted(files):
                    path = Path(parent, name)
                    with suppress(FileNotFoundError):
                        found = path.stat()
                        modified = datetime.fromtimestamp(found.st_mtime, UTC)
                        yield Entry(path.relative_to(self._root).as_posix(), found.st_size, modified)

    def delete(self, keys: Collection[str]) -> None:
        for key in keys:
            path = self._root / key
            with self._errors(key):
                path.unlink(missing_ok=True)
                for parent in path.parents:
                    if parent == self._root or not _remove_if_empty(parent):
                        break

    def remove_unfinished(self, before: datetime) -> None:
        self.delete([entry.key for entry in self.list(_UPLOADS + "/") if entry.modified < before])

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise MissingObjectError(f"{self._uri}/{key}: not found") from None
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(
                    f"{self._uri}: no space left; delete checkpoints or enlarge the volume"
                ) from error
            raise StoreError(f"{self._uri}/{key}: {error.strerror or error}") from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _rename_into(source: Path, target: Path) -> None:
    """Rename a file into a folder, which a concurrent deletion may have found empty and removed."""
    for _ in range(_RENAME_ATTEMPTS):
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            source.replace(target)
            return
    source.replace(target)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
