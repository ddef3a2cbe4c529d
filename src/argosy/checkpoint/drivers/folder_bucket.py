"""Objects as files of a folder: a disk of this machine, or a volume that several pods mount.

An object is written to `.uploads/`, flushed to the disk and renamed, so a reader sees all of it or nothing.
Others may write to the volume too: symbolic links below the folder are never followed, so that nothing
outside of it can be read or deleted.
"""

import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
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
    def root(self) -> Path:
        return self._root

    @property
    def uri(self) -> str:
        return self._uri

    def put(self, key: str, content: bytes) -> None:
        with self._errors(key):
            temporary = self._path(f"{_UPLOADS}/{secrets.token_hex(16)}")
            target = self._path(key)
            try:
                _write(temporary, content)
                _rename_into(temporary, target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            _flush_folder(target.parent)

    def get(self, key: str, max_bytes: int) -> bytes:
        with self._errors(key):
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise CorruptCheckpointError(f"{self._uri}/{key}: longer than {max_bytes} bytes")
        return content

    def list(self, prefix: str) -> Iterator[Entry]:
        with self._errors(prefix):
            for parent, folders, files in os.walk(self._path(f"{prefix}entry").parent):
                folders.sort()
                for name in sorted(files):
                    path = Path(parent, name)
                    with suppress(FileNotFoundError):
                        found = path.lstat()
                        if not stat.S_ISREG(found.st_mode):
                            continue
                        modified = datetime.fromtimestamp(found.st_mtime, UTC)
                        yield Entry(path.relative_to(self._root).as_posix(), found.st_size, modified)

    def folders(self) -> Sequence[str]:
        with self._errors(""):
            if not self._root.exists():
                return []
            found = [path for path in self._root.iterdir() if path.is_dir() and not path.is_symlink()]
        return sorted(path.name for path in found if path.name != _UPLOADS)

    def delete(self, keys: Collection[str]) -> None:
        for key in keys:
            with self._errors(key):
                path = self._path(key)
                path.unlink(missing_ok=True)
                for parent in path.parents:
                    if parent == self._root or not _remove_if_empty(parent):
                        break

    def remove_unfinished(self, before: datetime) -> None:
        self.delete([entry.key for entry in self.list(_UPLOADS + "/") if entry.modified < before])

    def _path(self, key: str) -> Path:
        """Return the path of an object; raises StoreError if a folder above it is a symbolic link."""
        path = self._root
        for name in key.split("/")[:-1]:
            path /= name
            if path.is_symlink():
                raise StoreError(f"{self._uri}: {path} is a symbolic link, which is not followed")
        return self._root / key

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
