"""Defines the interface of stores of checkpoints, and their errors and results.

A store holds the checkpoints of one job. It lists complete ones only: the manifest is written last.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from argosy.checkpoint.manifest import Manifest


class StoreError(Exception):
    """A store cannot be used or does not have what was asked for; the message says what to do."""


class MissingObjectError(StoreError):
    """Something that a checkpoint consists of does not exist in the store."""


class CorruptCheckpointError(StoreError):
    """A checkpoint differs from its manifest, in the store or in the folder that is published."""


class Saved(Struct, frozen=True, kw_only=True):
    """The result of publishing a checkpoint."""

    manifest: Manifest
    """The manifest in the store; with files of several pods, the one of all of them once it is complete."""
    complete: bool
    """Whether the store has the checkpoint; False while files of other pods are missing."""
    uri: str
    seconds: float
    uploaded: int
    """Bytes that were stored, after compression and without chunks that were there."""

    @property
    def digest(self) -> str:
        return self.manifest.digest


class Skipped(Struct, frozen=True):
    """A checkpoint that was passed over, and why."""

    name: str
    reason: str


class Latest(Struct, frozen=True):
    """The newest usable checkpoint, and the newer ones that are not."""

    manifest: Manifest | None
    skipped: tuple[Skipped, ...] = ()


class Scan(Struct, frozen=True):
    """All checkpoints of a store."""

    manifests: tuple[Manifest, ...]
    """The complete ones, the newest first."""
    skipped: tuple[Skipped, ...] = ()
    """Those whose manifest cannot be used."""
    vanished: bool = False
    """Whether one was deleted meanwhile, so that there may be a newer one."""


class CheckpointList(Protocol):
    """Checkpoints that can be listed, verified and deleted: a store, or the folder of a training."""

    @property
    def uri(self) -> str: ...

    def scan(self) -> Scan:
        """Return all checkpoints."""
        ...

    def list(self) -> Sequence[Manifest]:
        """Return the complete checkpoints, the newest first."""
        ...

    def find_latest(self, verify: bool = True) -> Latest:
        """Return the newest checkpoint whose data is there with the right sizes, and what was skipped.

        Without `verify`, its manifest is enough.
        """
        ...

    def verify(self, manifest: Manifest) -> Sequence[str]:
        """Return what is wrong with a checkpoint; reads all of it."""
        ...

    def prune(self, keep_last: int, keep: Collection[str] = ()) -> Sequence[str]:
        """Delete older checkpoints and the remains of killed uploads; returns the names of deleted ones."""
        ...


class Store(CheckpointList, Protocol):
    """A store to which checkpoints are published, and from which they are restored."""

    def publish(self, folder: Path, manifest: Manifest) -> Saved:
        """Store the checkpoint in a folder; it is listed once all of it is stored."""
        ...

    def latest(self, verify: bool = True) -> Manifest | None:
        """Return the manifest that `find_latest` returns."""
        ...

    def restore(self, manifest: Manifest, target: Path) -> None:
        """Write a checkpoint to a folder, which exists only when every digest was verified."""
        ...

    def restore_latest(self, target: Path) -> Latest:
        """Restore the newest checkpoint that can be restored; returns it, and which were skipped."""
        ...
