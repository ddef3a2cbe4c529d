"""What the store of chunks needs from a place for objects: a folder or a bucket of a cloud."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """An object as it is listed."""

    key: str
    size: int
    modified: datetime


class Bucket(Protocol):
    """Objects by name. Implementations raise StoreError, and MissingObjectError for one that is not there."""

    @property
    def uri(self) -> str: ...

    def put(self, key: str, content: bytes) -> None:
        """Store an object, whole or not at all; replaces one of that name."""
        ...

    def get(self, key: str, max_bytes: int) -> bytes:
        """Return an object; raises CorruptCheckpointError if it is longer than `max_bytes`."""
        ...

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose names begin with a folder's name, which ends in `/`."""
        ...

    def folders(self) -> Sequence[str]:
        """Return the first parts of the names of objects, as far as a `/` follows."""
        ...

    def delete(self, keys: Collection[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
        ...

    def remove_unfinished(self, before: datetime) -> None:
        """Remove what killed uploads have left outside of the objects."""
        ...
